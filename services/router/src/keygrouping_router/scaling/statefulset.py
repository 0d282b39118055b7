"""The number of pods of a StatefulSet, read and set through the Kubernetes API with the pod's own service account."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from keygrouping_service.kubernetes import ACCOUNT, URL, Kubernetes, Unreachable

_PATCH = {"Content-Type": "application/merge-patch+json"}


class Scale(NamedTuple):
    """How many pods there are to be, whoever has said so, and of which set of pods that is true.

    `uid` is another one after the set was deleted and created again, even under the same name.
    """

    uid: str
    pods: int


class Pods(Protocol):
    """Pods whose number can be read and set. Both calls raise `Unreachable`."""

    async def read(self) -> Scale:
        """How many there are to be, and of which set."""

    async def scale(self, count: int) -> None:
        """Asks for so many."""

    async def close(self) -> None:
        """Gives up connections."""


class StatefulSetPods:
    """`Pods` of a StatefulSet in the pod's own namespace; see `Kubernetes`."""

    def __init__(self, name: str, url: str = URL, account: Path = ACCOUNT) -> None:
        self._name = name
        self._api = Kubernetes(url, account)

    async def read(self) -> Scale:
        """`spec.replicas` and `metadata.uid`; see `Pods`."""
        answer = await self._ask("GET")
        try:
            # An absent number is 0 in this interface.
            return Scale(str(answer["metadata"]["uid"]), int(answer["spec"].get("replicas", 0)))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Unreachable(f"StatefulSet {self._name}: the answer is no Scale with a uid") from None

    async def scale(self, count: int) -> None:
        """See `Pods`."""
        await self._ask("PATCH", json={"spec": {"replicas": count}}, headers=_PATCH)

    async def close(self) -> None:
        """See `Pods`."""
        await self._api.close()

    async def _ask(self, method: str, **content: Any) -> Any:
        try:
            return await self._api.ask(method, f"statefulsets/{self._name}/scale", group="apis/apps/v1", **content)
        except Unreachable as error:
            raise Unreachable(f"StatefulSet {self._name}: {error}") from None
