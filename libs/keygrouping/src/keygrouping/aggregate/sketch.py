"""What a serialized HLL sketch must look like before anybody decodes it: decoders trust it, up to a segmentation fault.

The binary form of Apache DataSketches, lg_k 12, HLL_8. Byte 0: integers of the preamble; 1: version; 2: family;
3: lg_k; 4: lg of the array's length; 5: flags; 6: coupons of a list; 7: target type and mode. Then come a list of
coupons, or their number and a hash set of them, or sums, counts and the registers. The upper 6 bits of a coupon are the
value of its register.
"""

from __future__ import annotations

import math
import struct

import numpy as np

LG_K = 12
"""Base-2 logarithm of the number of registers: relative standard error 1.04 / sqrt(4096) = 1.6 %."""

REGISTERS = 1 << LG_K
LIST, SET, HLL = (2, 8), (3, 9), (10, 10)
"""Integers of the preamble, and the byte of type and mode."""

EMPTY, COMPACT, OUT_OF_ORDER = 4, 8, 16
LIST_START, SET_START, HLL_START = 8, 12, 40
LG_LIST = 3
LG_SETS = range(5, LG_K - 2)
LARGEST = 63
"""Greatest value of a register."""

_COUPON = np.dtype("<u4")


def sound(data: bytes) -> bytes | None:
    """The sketch in a form that can be decoded, merged and estimated from without harm; None if it is damaged, or of
    another family, size or type.

    Coupons come back in compact form, which a decoder puts into their places itself: of a hash set it would believe
    that they are there already.
    """
    if len(data) < LIST_START:
        return None
    preamble, version, family, lg_k, lg_array, flags, small, mode = data[:LIST_START]
    if (version, family, lg_k) != (1, 7, LG_K) or flags & ~(EMPTY | COMPACT | OUT_OF_ORDER):
        return None
    compact, empty = bool(flags & COMPACT), bool(flags & EMPTY)
    if (preamble, mode) == LIST:
        fits = lg_array == LG_LIST and empty == (small == 0) and small < 1 << LG_LIST
        return _with_coupons(data, LIST_START, small, small if compact else 1 << LG_LIST) if fits else None
    if (preamble, mode) == SET:
        if empty or small or lg_array not in LG_SETS or len(data) < SET_START:
            return None
        (count,) = struct.unpack_from("<I", data, LIST_START)
        fits = 0 < 4 * count <= 3 << lg_array
        return _with_coupons(data, SET_START, count, count if compact else 1 << lg_array) if fits else None
    is_plain = (preamble, mode) == HLL and not (empty or lg_array or small)
    return data if is_plain and _are_registers(data) else None


def _with_coupons(data: bytes, start: int, count: int, places: int) -> bytes | None:
    """In compact form, if so many of the places hold a coupon, all of them different, and the others nothing."""
    if len(data) != start + 4 * places:
        return None
    values = np.frombuffer(data, _COUPON, offset=start)
    used = values[values != 0]
    if len(used) != count or len(np.unique(used)) != count or not (used >> 26 > 0).all():
        return None
    coupons: bytes = used.tobytes()
    return data[:5] + bytes([data[5] | COMPACT]) + data[6:start] + coupons


def _are_registers(data: bytes) -> bool:
    if len(data) != HLL_START + REGISTERS:
        return False
    *sums, least, others = struct.unpack_from("<3d2I", data, LIST_START)
    finite = all(math.isfinite(number) for number in sums)
    return finite and least <= REGISTERS and not others and max(data[HLL_START:]) <= LARGEST
