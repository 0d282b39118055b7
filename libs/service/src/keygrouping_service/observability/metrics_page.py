"""Writes docs/metrics.md from the registry, to stdout: `python -m keygrouping_service.observability.metrics_page`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.observability.metrics import DEFINITIONS, LABELS, PROCESS, Definition, register_installed

_HEAD = """# Metrics

Every service shows its metrics at `/metrics`, in Prometheus's text format: those of all services, and its own. A
histogram `x` has the series `x_bucket`, `x_sum` and `x_count`. Keys of events are never labels, unless an
exporter is asked for it (`--key-labels`).

Each service defines its own in a module `metrics` of its package and names that module as an entry point of the group
`keygrouping.metrics`; `make docs` makes this page from them, and a test checks that it is current.
"""
_TITLES = {None: "All services", "spark": "Spark job", "inspect": "Exporter of `keygrouping inspect`"}


def render() -> str:
    """The page."""
    parts = [_HEAD]
    for service in (None, *register_installed()):
        definitions = [definition for definition in DEFINITIONS if definition.service == service]
        parts.append(_section(_TITLES.get(service, str(service).capitalize()), definitions))
    parts.append(_section("Process (Linux)", PROCESS))
    labels = [f"| `{name}` | {meaning} |" for name, meaning in LABELS.items()]
    parts.append("\n".join(["## Labels", "", "| label | values |", "|---|---|", *labels]) + "\n")
    return "\n".join(parts)


def _section(title: str, definitions: Iterable[Definition]) -> str:
    rows = [
        f"| `{d.name}` | {d.kind} | {d.unit} | {', '.join(f'`{label}`' for label in d.labels)} | {d.meaning} |"
        for d in definitions
    ]
    return (
        "\n".join([f"## {title}", "", "| name | type | unit | labels | meaning |", "|---|---|---|---|---|", *rows])
        + "\n"
    )


if __name__ == "__main__":
    take_no_arguments("python -m keygrouping_service.observability.metrics_page", about=__doc__)
    sys.stdout.write(render())
