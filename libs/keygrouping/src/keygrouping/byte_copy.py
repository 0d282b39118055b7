"""memcpy within kernels; needs numba, see `keygrouping.compiled`."""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def _copy(_: Any, out: Any, at: Any, data: Any, start: Any, size: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        to, source = (context.make_array(signature.args[i])(context, builder, given[i]).data for i in (0, 2))
        places = (builder.gep(to, [given[1]]), builder.gep(source, [given[3]]))
        cgutils.raw_memcpy(builder, *places, given[4], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64, types.int64), codegen


copy: Any = _copy
"""copy(out, at, data, start, size): data[start : start + size] to out[at:]; nothing looks whether that fits.

numba's own copy of a slice costs several times as much for few bytes.
"""
