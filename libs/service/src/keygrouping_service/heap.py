"""Frees what closed clients of Kafka leave behind, and gives the memory of freed buffers back to the system."""

from __future__ import annotations

import asyncio
import ctypes
import gc

_EVERY_SECONDS = 60.0
_YOUNG = 1
"""The collector's generations of what was made since its last rounds; millions of open windows are older soon."""


def trim_heap() -> bool:
    """Gives all free pages of glibc's heap back; False with another C library, where nothing changes.

    Takes milliseconds, and does not hold the interpreter.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return False
    trim(0)
    return True


async def keep_heap_small() -> None:
    """Collects young cycles and trims the heap once a minute, until cancelled.

    The clients of a session that has ended are cycles, and services let the collector run rarely.

    By itself glibc gives back only what is free at the heap's end. A consumer of Kafka frees buffers of all sizes all
    the time, so for hours each new mixture of sizes would leave other holes, and its memory would seem to leak.
    """
    trims = True
    while True:
        gc.collect(_YOUNG)
        trims = trims and await asyncio.to_thread(trim_heap)
        await asyncio.sleep(_EVERY_SECONDS)
