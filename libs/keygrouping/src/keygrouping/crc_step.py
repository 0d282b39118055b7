"""The processor's instruction for CRC-32C within kernels; needs numba, see `keygrouping.compiled`.

Every x86-64 has it for which numpy has wheels (x86-64-v2, SSE 4.2). It is written as assembly, because in images
kernels are compiled for the plainest processor, for which LLVM knows of none.
"""

import platform
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

HAS_CRC_STEP = platform.machine() in ("x86_64", "AMD64")
"""Whether the instruction can be used."""

if HAS_CRC_STEP:
    binding.initialize_native_asmparser()


@intrinsic
def _crc_step(_: Any, crc: Any, following: Any) -> Any:  # noqa: ARG001
    def codegen(_: Any, builder: Any, __: Any, given: Any) -> Any:
        number = ir.IntType(64)
        return builder.asm(ir.FunctionType(number, [number] * 2), "crc32q $2, $0", "=r,0,r", given, False)

    return types.uint64(types.uint64, types.uint64), codegen


crc_step: Any = _crc_step
"""crc_step(crc, following): the checksum with eight bytes more, which are a little-endian number."""
