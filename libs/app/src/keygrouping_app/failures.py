"""What a failed call says of itself."""

from __future__ import annotations

import asyncio
import hashlib
import traceback
from dataclasses import replace

from keygrouping_app.events import UndecodableError
from keygrouping_app.kept import StateError, UnreadableStateError
from keygrouping_app.scheduler import Failure
from keygrouping_app.tally import UNREADABLE

_MOST_DETAIL = 1000
_OF_EVENT_OR_CODE = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError)
"""What a value that is not as expected raises, or code that is wrong: nothing that waiting makes better."""
_ONCE_READ = (
    "The state stays as it is, and events of its key are dead letters: when members run that can read it, send these "
    f"again by keygrouping redrive --reason {UNREADABLE}"
)


class Reject(Exception):
    """Raised by a handler: the event goes to the dead letters at once, without another try."""


class OutputError(ValueError):
    """What a handler has returned can't be written."""


def failure_of(error: BaseException, expired: bool) -> Failure:
    """The failure that an exception of a handler stands for; `expired`: its deadline had passed before."""
    if isinstance(error, BaseExceptionGroup):
        return _failure_of_group([failure_of(each, expired) for each in error.exceptions])
    text = _text(error)
    detail = f"{type(error).__name__}: {text}"[:_MOST_DETAIL]
    digest = _digest(error)
    if isinstance(error, Reject):
        return Failure("rejected", text[:_MOST_DETAIL], retry=False, digest=digest)
    if expired:
        told = f"the handler was at work longer than its timeout ({detail})"
        return Failure("timeout", told, digest=digest, dependency=True)
    if isinstance(error, UndecodableError):
        return Failure("undecodable", str(error)[:_MOST_DETAIL], retry=False)
    if isinstance(error, OutputError):
        return Failure("invalid_output", str(error)[:_MOST_DETAIL], retry=False)
    if isinstance(error, StateError):
        return Failure("invalid_state", str(error)[:_MOST_DETAIL], retry=False)
    if isinstance(error, UnreadableStateError):
        return Failure(UNREADABLE, f"{error}. {_ONCE_READ}"[:_MOST_DETAIL], retry=False)
    if isinstance(error, asyncio.CancelledError):
        return Failure("failed", "the handler was cancelled by something that it awaited", digest=digest)
    dependency = isinstance(error, OSError) or not isinstance(error, _OF_EVENT_OR_CODE)
    return Failure("failed", detail, digest=digest, dependency=dependency)


def _failure_of_group(failures: list[Failure]) -> Failure:
    """What an `asyncio.TaskGroup` raises: what may be over at another try is tried again, whatever else failed."""
    worst = max(failures, key=lambda failure: (failure.retry, failure.dependency))
    return replace(worst, detail="; ".join(failure.detail for failure in failures)[:_MOST_DETAIL])


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "it can't say what is wrong"


def _digest(error: BaseException) -> str:
    """12 hex digits of the type and the places that it came through, whatever its text says."""
    places = [f"{frame.filename}:{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return hashlib.sha256("\n".join([type(error).__qualname__, *places]).encode()).hexdigest()[:12]
