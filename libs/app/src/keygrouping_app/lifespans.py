"""What handlers need besides events: opened before the first one, closed after the last."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

Lifespan: TypeAlias = Callable[..., AsyncIterator[Any]]


@asynccontextmanager
async def provided(lifespans: Mapping[str, Lifespan], given: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Runs lifespans around its body, but for those of which the values are given; gives all values by name."""
    values = dict(given)
    async with AsyncExitStack() as stack:
        for name, function in lifespans.items():
            if name not in given:
                wants = {each: values[each] for each in wanted_by(function)}
                values[name] = await stack.enter_async_context(asynccontextmanager(function)(**wants))
        yield values


def needed(lifespans: Mapping[str, Lifespan], names: Iterable[str]) -> dict[str, Lifespan]:
    """Those of these names and those that they need themselves, in the order of declaration."""
    wanted = set(names)
    for name in reversed(list(lifespans)):
        if name in wanted:
            wanted |= set(wanted_by(lifespans[name]))
    return {name: function for name, function in lifespans.items() if name in wanted}


def wanted_by(function: Callable[..., Any]) -> list[str]:
    """The names of its parameters."""
    return list(inspect.signature(function).parameters)
