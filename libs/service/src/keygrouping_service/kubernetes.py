"""The Kubernetes API, asked with the pod's own service account about its own namespace."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

import httpx

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
URL = "https://kubernetes.default.svc"
_TIMEOUT_SECONDS = 5.0


class Unreachable(Exception):
    """The API server did not do what it was asked for; the message is one line that says why."""


class Missing(Unreachable):
    """There is no such object."""


class Kubernetes:
    """Asks the API server.

    `account` holds what Kubernetes mounts: `namespace`, `ca.crt`, and `token`, which is rotated.
    """

    def __init__(self, url: str = URL, account: Path = ACCOUNT) -> None:
        self._url = url
        self._account = account
        self._client: httpx.AsyncClient | None = None

    async def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, group: str = "api/v1", **content: Any
    ) -> Any:
        """The answer's JSON for a path in the namespace, such as `pods`; raises `Unreachable`.

        `group` is the API's, such as `apis/apps/v1`; `content` goes to httpx as it is (`json`, `params`).
        """
        try:
            token, namespace = ((self._account / name).read_text().strip() for name in ("token", "namespace"))
            place = f"{self._url}/{group}/namespaces/{namespace}/{path}"
            allowed = {"Authorization": f"Bearer {token}", **(headers or {})}
            answer = await self._connected().request(method, place, headers=allowed, **content)
            if answer.is_error:
                kind = Missing if answer.status_code == httpx.codes.NOT_FOUND else Unreachable
                raise kind(f"{answer.status_code} {_told(answer)}")
            return answer.json()
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise Unreachable(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        """Gives up connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

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
