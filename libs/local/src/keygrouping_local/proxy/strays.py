"""A transactional request that is delayed until its sender is in the middle of its next transaction."""

from __future__ import annotations

from keygrouping_local.proxy.proxy import Proxy
from keygrouping_local.proxy.requests import Api, Request
from keygrouping_local.proxy.rules import Held, Match


class Stray:
    """The next request that matches `late`, kept back beyond its sender's timeout.

    stray = Stray(proxy, lambda request: request.api is Api.END_TXN)
    written = stray.hold_in_next(Api.PRODUCE, answer=True)
    ...
    await written.caught()      # the sender has given the stray up, and written to its next transaction
    answer = await stray.deliver()
    """

    def __init__(self, proxy: Proxy, late: Match) -> None:
        self._proxy = proxy
        self._late = proxy.hold(late)

    def hold_in_next(self, api: Api, *, answer: bool = False) -> Held:
        """Holds the first such request, or its answer, of the transaction that follows: in whichever epoch."""
        return self._proxy.hold(_InNext(self._late, api), answer=answer)

    async def caught(self) -> Request:
        """Waits until the request is there."""
        return await self._late.caught()

    async def deliver(self) -> bytes:
        """Lets the request go, and gives the broker's answer to it."""
        self._late.release()
        return await self._late.answered()


class _InNext:
    """Matches from the first EndTxn or InitProducerId on that the stray's sender sends after it."""

    def __init__(self, late: Held, api: Api) -> None:
        self._late = late
        self._api = api
        self._next = False

    def __call__(self, request: Request) -> bool:
        late = self._late.request
        if late is None or request.transactional_id != late.transactional_id:
            return False
        if self._next and request.api is self._api:
            return True
        self._next = self._next or request.api in (Api.END_TXN, Api.INIT_PRODUCER_ID)
        return False
