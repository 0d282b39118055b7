"""What replicas share: versioned documents, bounded logs, the presence of members, and leases."""

from keygrouping_service.store.decoding import MOST_BYTES, Unreadable
from keygrouping_service.store.opening import open_store
from keygrouping_service.store.protocol import Conflict, Entry, LogRecord, Store, Unanswered, Unavailable

__all__ = [
    "MOST_BYTES",
    "Conflict",
    "Entry",
    "LogRecord",
    "Store",
    "Unanswered",
    "Unavailable",
    "Unreadable",
    "open_store",
]
