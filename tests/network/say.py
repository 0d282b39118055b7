"""What a long test says while it runs."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[object], None]
"""Prints at once, although pytest captures output."""
