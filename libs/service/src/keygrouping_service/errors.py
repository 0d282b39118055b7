"""What ends a service."""

from __future__ import annotations


class Fatal(Exception):
    """The service can't go on and a retry won't help; the message is one line that says what to do."""
