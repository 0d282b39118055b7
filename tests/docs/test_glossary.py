"""No term without an entry: the words that users meet in settings, metrics, commands and pages stand in the list."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from keygrouping import aggregate, cli, grouping, measure
from keygrouping.cli import plugins
from keygrouping.job import Reason
from keygrouping.job.declaration import Job
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_observer.audit.report import AuditedWindow
from keygrouping_observer.settings import ObserverSettings
from keygrouping_router.settings import RouterSettings
from keygrouping_service.settings import ServiceSettings
from keygrouping_worker.settings import WorkerSettings

from .pages import DOCS

_ROW = re.compile(r"^\| (?!term |---)(.+?) \| (.+) \|$", re.M)
_RESOURCE = re.compile(r"^### `[A-Z]+ /(\w+)", re.M)
_LABELS = re.compile(r"^\| `keygrouping_\w+` \| \w+ \| [^|]* \| ([^|]+) \|", re.M)
_PLAIN = re.compile(r"_(topic|file|url|readers)$")
"""Settings that say by their name alone which topic, file, address or groups they name."""
APP = (
    *("app", "handler", "lane", "member", "gap", "retries", "lifespan", "dead letter", "identity"),
    *("state", "changelog", "restore"),
)


def entries() -> list[tuple[list[str], str]]:
    """The names of each entry, with those of the papers, and its meaning."""
    rows = _ROW.findall((DOCS / "glossary.md").read_text())
    return [([name.strip() for name in re.split(r"[,()]", names) if name.strip()], meaning) for names, meaning in rows]


def settings() -> set[str]:
    """The settings of the stages themselves; those of clients, HTTP and stores are named as everywhere."""
    classes = (RouterSettings, WorkerSettings, AggregatorSettings, ObserverSettings)
    names = {name for each in classes for name in each.__annotations__ if name in each.model_fields}
    return {name for name in names if not _PLAIN.search(name)}


def labels() -> set[str]:
    """The labels of all metrics."""
    shown = _LABELS.findall((DOCS / "metrics.md").read_text())
    return {label for row in shown for label in re.findall(r"`(\w+)`", row)}


def terms() -> set[str]:
    """The terms that users meet, from the code that defines them."""
    topics = (field for name, field in ServiceSettings.model_fields.items() if name.endswith("_topic"))
    return {
        *(name for name in Job.model_fields if not name.endswith("_")),
        *(field.default or "quarantine" for field in topics),
        *get_args(Reason),
        *_RESOURCE.findall((DOCS / "reference" / "http.md").read_text()),
        *(name for name in measure.__all__ if name.islower()),
        *settings(),
        *labels(),
        *grouping.names(),
        *aggregate.names(),
        *(f"keygrouping {command}" for command in {**cli._COMMANDS, **plugins.commands()}),
        *get_args(AuditedWindow.model_fields["verdict"].annotation),
        *APP,
        *("router", "worker", "aggregator", "observer", "watermark", "plan", "epoch", "session", "lease", "presence"),
        *("seed", "dry run", "due share", "fair share", "level", "home", "premise", "tracked key", "exporter"),
    }


@pytest.mark.parametrize("term", sorted(terms()))
def test_a_term_has_an_entry(term: str) -> None:
    assert any(term in names for names, _ in entries()), f"docs/glossary.md has no entry for {term!r}"


def test_entries_are_in_order_and_each_name_has_one() -> None:
    first = [names[0].replace("λ", "lambda").casefold() for names, _ in entries()]
    assert first == sorted(first)
    names = [name for each, _ in entries() for name in each]
    assert sorted(names) == sorted(set(names))


def test_a_meaning_is_a_sentence() -> None:
    assert [names for names, meaning in entries() if not meaning.endswith(".")] == []
