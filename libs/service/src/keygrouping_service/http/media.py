"""What a body is said to be, and what it must be said to be."""

from __future__ import annotations

from starlette.datastructures import Headers

JSON = "application/json"
LINES = "application/x-ndjson"
"""JSON, a value a line."""
FORM = "application/x-www-form-urlencoded"


def media_type(headers: Headers) -> str:
    """What a body is said to be, without parameters; empty if nothing is said."""
    return headers.get("content-type", "").split(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Whether that is JSON, or lines of it."""
    return media in (JSON, LINES) or (media.startswith("application/") and media.endswith("+json"))


def wrong_media(media: str, *wanted: str) -> str:
    """One line for whoever has sent another type, or none: which header to set to what."""
    found = f"it says {media}" if media else "it is missing"
    return f"set the header Content-Type to {' or '.join(wanted)}: {found}"
