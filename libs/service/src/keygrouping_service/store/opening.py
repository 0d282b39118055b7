"""From settings to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keygrouping_service.store.protocol import Store
from keygrouping_service.store_url import FileUrl, MemoryUrl, parse_url

if TYPE_CHECKING:
    from keygrouping_service.settings import StoreSettings


def open_store(settings: StoreSettings) -> Store:
    """The store that the settings name, to be closed by the caller.

    It asks nothing of a server yet: one that is away shows with the first call. Raises `Fatal` if a file can't be used.
    """
    url = parse_url(settings.store_url)
    if isinstance(url, MemoryUrl):
        from keygrouping_service.store.memory import MemoryStore

        return MemoryStore()
    if isinstance(url, FileUrl):
        from keygrouping_service.store.file import FileStore

        return FileStore(url.path, settings.store_timeout)
    from keygrouping_service.store.redis import RedisStore

    return RedisStore(url, settings)
