"""Who may call an HTTP interface: bearer tokens from a file that may change at any time."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from keygrouping_service.settings import TokenSettings

log = logging.getLogger(__name__)

_REALM = 'Bearer realm="keygrouping"'
_SCHEME = HTTPBearer(auto_error=False, description="one of the tokens in KEYGROUPING_API_TOKEN_FILE")


class TokenFile:
    """The tokens of a file, one a line, read again when the file changes: so they rotate without a restart.

    To rotate, add the new token, hand it out, then take the old one away. A file that can't be read, or holds
    nothing, accepts no token at all.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._digests: list[bytes] = []
        self._fault: str | None = None

    def accepts(self, token: str) -> bool:
        """Whether the token is one of the file's; takes the same time for any token."""
        self._refresh()
        digest = _digest(token)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0

    def _refresh(self) -> None:
        try:
            stat = os.stat(self._path)
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
            if seen == self._seen:
                return
            lines = self._path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            if str(error) != self._fault:
                log.error("KEYGROUPING_API_TOKEN_FILE can't be read, so no token is accepted: %s", error)
            self._seen, self._digests, self._fault = None, [], str(error)
            return
        self._seen, self._fault = seen, None
        self._digests = [_digest(line.strip()) for line in lines if line.strip()]


class Auth:
    """Dependencies for routes: `reading` and `writing` answer 401 to a request without a valid token.

    Both are empty where no token is needed, so that the OpenAPI document asks for none.
    """

    def __init__(self, settings: TokenSettings) -> None:
        needed: list[Any] = []
        if settings.api_token_file is not None:
            tokens = TokenFile(settings.api_token_file)

            async def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]) -> None:
                _check(tokens, given)

            needed = [Depends(check)]
        self.writing: Sequence[Any] = needed
        self.reading: Sequence[Any] = needed if settings.api_reads == "closed" else []


def _check(tokens: TokenFile, given: HTTPAuthorizationCredentials | None) -> None:
    if given is None:
        raise HTTPException(401, "send a token: Authorization: Bearer ...", {"WWW-Authenticate": _REALM})
    if not tokens.accepts(given.credentials):
        challenge = f'{_REALM}, error="invalid_token"'
        raise HTTPException(401, "the token is not valid (any more)", {"WWW-Authenticate": challenge})


def _digest(token: str) -> bytes:
    """Of one length whatever the token's, which comparing must not tell."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
