"""What a rule is, before it is written for Prometheus or for Grafana."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info"]

SEVERITIES: Mapping[Severity, str] = {
    "critical": "results are late or stop: wake somebody",
    "warning": "somebody should look at it today",
    "info": "good to know",
}

RUNBOOKS = "https://keygrouping.example.com/docs/runbooks.md"
"""Where docs/runbooks.md can be read; the chart puts its own value in place of it."""


RELEASE = "app_kubernetes_io_instance"
"""Label that tells releases in one namespace apart, as Prometheus names that of the pods. It may be absent."""

_BY_NAMESPACE = re.compile(rf"\b(by|on) \(namespace(?!, {RELEASE})\b")


def by_release(expr: str) -> str:
    """An expression that takes the releases in a namespace each by itself, wherever it takes namespaces so."""
    return _BY_NAMESPACE.sub(rf"\1 (namespace, {RELEASE}", expr)


_PLACE = "{{ $labels.namespace }}"
_NAMED = f'{_PLACE}{{{{ with index $labels "{RELEASE}" }}}}/{{{{ . }}}}{{{{ end }}}}'


def naming_release(text: str) -> str:
    """A template that names the release, where it is known, wherever it names the namespace."""
    return text.replace(_NAMED, _PLACE).replace(_PLACE, _NAMED)


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that is computed from others; several with one name and different labels make up one series.

    `expr` is written by namespace; see `by_release`.
    """

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "expr", by_release(self.expr))


@dataclass(frozen=True, slots=True)
class Objective:
    """A promise: this part of what a histogram counts is there `within` seconds (one of its bounds), over 30 days.

    `missed` names what was too late, in the names of recorded series.
    """

    missed: str
    histogram: str
    part: float
    within: float

    @property
    def budget(self) -> float:
        """Part of it that may be late."""
        return 1 - self.part

    def ratio(self, window: str) -> str:
        """The recorded series of the part that was late over a window, one of `recordings.WINDOWS`."""
        return f"keygrouping:{self.missed}:ratio_rate{window}"


@dataclass(frozen=True, slots=True)
class Alert:
    """What is wrong while `expr` gives anything for as long as `lasts` (a duration of Prometheus).

    `expr` is written by namespace; see `by_release`. `summary` and `description` are Prometheus' templates over
    `$labels` and `$value`; see `naming_release`.
    """

    name: str
    expr: str
    lasts: str
    severity: Severity
    summary: str
    description: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "expr", by_release(self.expr))
        object.__setattr__(self, "summary", naming_release(self.summary))
        object.__setattr__(self, "description", naming_release(self.description))

    @property
    def runbook(self) -> str:
        """Address of the alert's section."""
        return runbook(self.name)


def runbook(alert: str) -> str:
    """Address of an alert's section in the runbooks."""
    return f"{RUNBOOKS}#{alert.lower()}"
