"""The values of results, whatever the code that makes them does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keygrouping.aggregate.base import Aggregate
from keygrouping.aggregate.registry import is_foreign
from keygrouping.partial import dump


def published(aggregate: Aggregate, finish: Callable[[Any], Any], state: Any) -> tuple[Any, str]:
    """The value that `finish` makes of a state, and what is wrong with it ("": nothing).

    Code that is not the library's may raise an error, or give what is not JSON: the value is None then.
    """
    if not is_foreign(aggregate):
        return finish(state), ""
    try:
        value = finish(state)
        dump(value)
    except Exception as error:
        return None, aggregate.failed(error)
    return value, ""
