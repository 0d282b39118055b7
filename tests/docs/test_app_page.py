"""The page on apps: its code runs, in one namespace, and its tables say what the code has."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

import pytest
from keygrouping.app import App
from keygrouping_app.environment import NAMES, PREFIX
from keygrouping_app.metrics import DEFINITIONS

from .pages import DOCS, ROOT, blocks

PAGE = DOCS / "app.md"


def test_its_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "\n".join(block.text for block in blocks(PAGE, "python"))
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where the types of a state are looked up
    exec(compile(code, str(PAGE), "exec"), vars(module))


def first_column(heading: str) -> list[str]:
    """The names in the first column of the table whose first row says this."""
    table = PAGE.read_text().partition(f"| {heading}")[2].partition("\n\n")[0]
    return [
        name for line in table.splitlines() if line.startswith("| `") for name in line.split(" | ")[0].split("`")[1::2]
    ]


def test_the_readme_begins_with_its_first_block_and_then_inspects_a_topic() -> None:
    first, *_ = blocks(PAGE)
    shown, inspect_it, *_ = blocks(ROOT / "README.md")
    assert shown.text == first.text
    assert "\nkeygrouping inspect --topic " in inspect_it.text


def test_it_has_all_arguments_of_a_handler() -> None:
    assert first_column("argument of `@app.on`") == list(inspect.signature(App.on).parameters)[2:]


def test_it_has_all_metrics() -> None:
    assert sorted(first_column("metric `keygrouping_app_...`")) == sorted(DEFINITIONS)


def test_it_has_arguments_that_an_app_takes() -> None:
    assert set(first_column("argument of `App`")) <= set(inspect.signature(App).parameters)


def test_it_has_all_variables_of_the_environment() -> None:
    assert sorted(PREFIX + name for name in first_column("variable `KEYGROUPING_...`")) == sorted(NAMES)
