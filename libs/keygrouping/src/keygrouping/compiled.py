"""Kernels compiled by numba, wherever the code is installed."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numpy.typing import NDArray

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Array = TypeVar("Array", bound=NDArray[Any])


def kernel(function: Kernel) -> Kernel:
    """The function compiled to machine code at its first call, without the GIL, and cached on disk.

    The cache stands beside the source or, if that can't be written, in the user's cache directory (or in
    NUMBA_CACHE_DIR). Where nothing can be written the kernel is compiled in every process.
    numba takes a second to import: only modules that are themselves imported late may use this.
    """
    import numba

    compiled: Any
    try:
        compiled = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no place for the cache that can be written
        compiled = numba.njit(nogil=True)(function)
    return cast(Kernel, compiled)


def in_one_piece(array: Array) -> Array:
    """The array, or a copy that lies in one piece and can be written: kernels are compiled for one kind only."""
    return array if array.flags.carray else array.copy()
