"""The number of pods of a StatefulSet, read and set through the Kubernetes API with the pod's own service account."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
URL = "https://kubernetes.default.svc"
_TIMEOUT_SECONDS = 5.0
_PATCH = {"Content-Type": "application/merge-patch+json"}


class Unreachable(Exception):
    """The pods can't be counted or scaled now; the message is one line that says why."""


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
    """`Pods` of a StatefulSet in the pod's own namespace.

    `account` holds what Kubernetes mounts: `namespace`, `ca.crt`, and `token`, which is rotated.
    """

    def __init__(self, name: str, url: str = URL, account: Path = ACCOUNT) -> None:
        self._name = name
        self._url = url
        self._account = account
        self._client: httpx.AsyncClient | None = None

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
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _ask(self, method: str, headers: dict[str, str] | None = None, **content: Any) -> Any:
        try:
            token, namespace = ((self._account / name).read_text().strip() for name in ("token", "namespace"))
            scale = f"{self._url}/apis/apps/v1/namespaces/{namespace}/statefulsets/{self._name}/scale"
            allowed = {"Authorization": f"Bearer {token}", **(headers or {})}
            answer = await self._connected().request(method, scale, headers=allowed, **content)
            if answer.is_error:
                raise Unreachable(f"StatefulSet {self._name}: {answer.status_code} {_told(answer)}")
            return answer.json()
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"StatefulSet {self._name}: {error or type(error).__name__}") from None

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            context = ssl.create_default_context(cafile=self._account / "ca.crt")
            self._client = httpx.AsyncClient(verify=context, timeout=_TIMEOUT_SECONDS)
        return self._client


def _told(answer: httpx.Response) -> str:
    """What the API server says is wrong."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return " ".join(str(answer.json()["message"]).split())
    return answer.reason_phrase
