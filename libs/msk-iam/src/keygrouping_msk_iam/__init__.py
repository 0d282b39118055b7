"""Tokens for Amazon MSK with IAM: `token` for services (KEYGROUPING_SASL_TOKEN_PROVIDER), `MskIam` for apps."""

from __future__ import annotations

import asyncio
import os
import threading
import time

from aiokafka.abc import AbstractTokenProvider

try:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
except ModuleNotFoundError as error:
    if error.name != "aws_msk_iam_sasl_signer":
        raise
    raise ModuleNotFoundError(
        "keygrouping_msk_iam needs a package: pip install aws-msk-iam-sasl-signer-python"
    ) from None

__all__ = ["MskIam", "token"]

_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_SPARE_SECONDS = 120.0
"""A token that is valid for less than this is replaced."""


class MskIam(AbstractTokenProvider):  # type: ignore[misc]
    """Gives tokens of the credentials that AWS's library finds: environment, role of the pod or machine, profile.

    - `region`: of the cluster; None: `AWS_REGION` or `AWS_DEFAULT_REGION`. ValueError if there is none.

    A token is kept as long as it is valid. Any number of clients may have the same provider.
    """

    def __init__(self, region: str | None = None) -> None:
        given = (region, *(os.environ.get(name) for name in _REGIONS))
        self._region = next((each for each in given if each), "")
        if not self._region:
            raise ValueError("no region of AWS: set AWS_REGION to the cluster's, or write MskIam('eu-west-1')")
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    async def token(self) -> str:
        """A token that is valid now; AWS is asked on a thread."""
        return await asyncio.to_thread(self.token_now)

    def token_now(self) -> str:
        """The same for who may wait."""
        with self._lock:
            if time.time() > self._until - _SPARE_SECONDS:
                token, until_ms = MSKAuthTokenProvider.generate_auth_token(self._region)
                self._token, self._until = str(token), until_ms / 1000
            return self._token


_provider: MskIam | None = None
_making = threading.Lock()


def token() -> str:
    """A token of the process's credentials and region, valid now."""
    global _provider
    with _making:
        _provider = _provider or MskIam()
    return _provider.token_now()
