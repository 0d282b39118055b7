"""What replicas share: versioned documents, bounded logs, boards of live members and leases."""

from keygrouping_service.store.opening import open_store
from keygrouping_service.store.protocol import Conflict, Entry, Record, Store, Unanswered, Unavailable

__all__ = ["Conflict", "Entry", "Record", "Store", "Unanswered", "Unavailable", "open_store"]
