"""What the runbooks look for in logs is what the services, or the Kafka client, write there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import aiokafka
import pytest

from .pages import DOCS, ROOT

_SEARCH = re.compile(r"logs .*\| grep (?:-(\w+) )?\"([^\"]+)\"")


def searches() -> Iterator[tuple[str, bool]]:
    """What each command looks for, and whether it ignores case."""
    for options, pattern in _SEARCH.findall((DOCS / "runbooks.md").read_text()):
        for wanted in pattern.split("|") if "E" in options else [pattern]:
            yield wanted, "i" in options


@cache
def texts() -> str:
    """All texts and names of errors in the code that logs: the services, and the client of Kafka."""
    services = (*ROOT.glob("libs/*/src"), *ROOT.glob("services/*/src"), ROOT / "spark-jobs" / "src")
    files = (file for place in (*services, *map(Path, aiokafka.__path__)) for file in place.rglob("*.py"))
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_bytes())))
    return "\n".join(
        node.name if isinstance(node, ast.ClassDef) else str(node.value)
        for node in nodes
        if isinstance(node, ast.ClassDef | ast.Constant)
    )


@pytest.mark.parametrize(("wanted", "ignores_case"), sorted(set(searches())))
def test_a_line_that_a_runbook_looks_for_is_written(wanted: str, ignores_case: bool) -> None:
    written = texts()
    assert (wanted.lower() in written.lower()) if ignores_case else (wanted in written)
