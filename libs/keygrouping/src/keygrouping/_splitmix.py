"""Random numbers whose whole state is one integer; needs numba.

Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014), SplitMix64 with the
constants of Vigna's public domain version.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel

GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32), np.uint64(11)


@kernel
def mix(value: np.uint64) -> np.uint64:
    """A number of which every bit depends on every bit of the value; one to one."""
    value = (value ^ (value >> _S30)) * _MIX1
    value = (value ^ (value >> _S27)) * _MIX2
    return value ^ (value >> _S31)


@kernel
def draw(state: NDArray[np.uint64]) -> np.uint64:
    """64 random bits; the one number of the state goes on."""
    state[0] += GAMMA
    return mix(state[0])


@kernel
def below(bits: np.uint64, limit: int) -> Any:
    """An integer from 0 to limit - 1 out of random bits; the limit is at most 2**32."""
    return np.int64(((bits >> _S32) * np.uint64(limit)) >> _S32)


@kernel
def unit(bits: np.uint64) -> Any:
    """A number above 0 and up to 1 out of random bits."""
    return (np.float64(bits >> _S11) + 1.0) / 9007199254740992.0
