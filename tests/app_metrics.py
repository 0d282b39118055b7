"""The metrics of apps, which have a table of their own: names as Prometheus has them, and their labels."""

from __future__ import annotations

from keygrouping_app.metrics import DEFINITIONS, PREFIX

SUFFIXES = {"handler_seconds": ("_bucket", "_sum", "_count")}
NAMES = {PREFIX + name + suffix for name in DEFINITIONS for suffix in SUFFIXES.get(name, ("",))}
LABELS = {"group", *(label for *_, labels in DEFINITIONS.values() for label in labels)}
