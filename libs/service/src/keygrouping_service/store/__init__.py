"""What replicas share: versioned documents, bounded logs, boards of live members and leases."""

from keygrouping_service.store.decoding import MOST_BYTES, Unreadable
from keygrouping_service.store.opening import open_store
from keygrouping_service.store.protocol import Conflict, Entry, Record, Store, Unanswered, Unavailable

__all__ = [
    "MOST_BYTES",
    "Conflict",
    "Entry",
    "Record",
    "Store",
    "Unanswered",
    "Unavailable",
    "Unreadable",
    "open_store",
]
