"""Traces by OpenTelemetry, where they are asked for; without it, nothing of it is even imported."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from keygrouping_service.errors import Fatal
from keygrouping_service.settings import ServiceSettings

if TYPE_CHECKING:
    from keygrouping_service.observability.spans import Spans

_STANDARD = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_active: Spans | None = None


def active() -> Spans | None:
    """What makes spans in this process; None if tracing is off."""
    return _active


@contextlib.contextmanager
def tracing(settings: ServiceSettings) -> Iterator[None]:
    """Traces while it is entered, if the settings or OpenTelemetry's own environment name a collector.

    Sampling, resource attributes, propagators and the exporter's headers follow the standard `OTEL_...` environment.
    Raises `Fatal` if the packages of the extra `tracing` are missing.
    """
    if settings.otel_endpoint is None and not any(os.environ.get(name) for name in _STANDARD):
        yield
        return
    try:
        from keygrouping_service.observability import spans
    except ImportError as error:
        raise Fatal(
            f"tracing needs the package {error.name}: install keygrouping-service[tracing], or unset "
            f"KEYGROUPING_OTEL_ENDPOINT and {_STANDARD[1]}"
        ) from None
    with using(spans.Spans(spans.exporting(settings.otel_endpoint), f"keygrouping-{settings.section.lower()}")):
        yield


@contextlib.contextmanager
def using(spans: Spans) -> Iterator[None]:
    """Makes `spans` those of this process while it is entered; what is not exported at the end gets a moment."""
    global _active
    _active = spans
    try:
        yield
    finally:
        _active = None
        spans.close()
