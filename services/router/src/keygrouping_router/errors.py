"""Why an order to the router is not carried out."""

from __future__ import annotations


class Refused(ValueError):
    """Settings that can't be used; one line."""


class Stale(Exception):
    """The control document has another version than the caller expected."""


class Degraded(Exception):
    """The store can't take or give this now; one line."""


class Unknown(LookupError):
    """There is no such router or key; one line."""
