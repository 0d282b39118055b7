"""Tokens for Kafka's SASL mechanism OAUTHBEARER, from a function of the user's own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from aiokafka.abc import AbstractTokenProvider


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Asks the function for each connection; a plain one runs on a thread, as it may call somebody."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    async def token(self) -> str:
        """A token that is valid now."""
        if inspect.iscoroutinefunction(self._function):
            return str(await self._function())
        return str(await asyncio.to_thread(self._function))
