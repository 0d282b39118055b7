"""Tokens for Kafka's SASL mechanism OAUTHBEARER, from a function of the user's own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TypeAlias, cast

from aiokafka.abc import AbstractTokenProvider

Callback: TypeAlias = Callable[[], str | Awaitable[str]]
"""Gives a token that is valid now."""

_MSK_IAM = "keygrouping_msk_iam"
_INSTALL = "in the repository's folder, pip install ./libs/msk-iam"


def load_callback(place: str) -> Callback:
    """The function at `module:function`. ValueError if there is none."""
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        ours = isinstance(error, ModuleNotFoundError) and error.name == _MSK_IAM
        advice = _INSTALL if ours else "give module:function, installed here"
        raise ValueError(f"{place!r} can't be imported ({error}): {advice}") from None
    if not callable(found):
        raise ValueError(f"{place!r} is no function: give module:function")
    return cast(Callback, found)


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Asks the callback for each connection; a plain function runs on a thread, as it may call somebody."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    async def token(self) -> str:
        """A token that is valid now."""
        if inspect.iscoroutinefunction(self._callback):
            return await cast(Awaitable[str], self._callback())
        return cast(str, await asyncio.to_thread(self._callback))
