"""What is made from code says what the code says: pages of settings and of HTTP, drawings, figures of groupings."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from keygrouping import grouping
from keygrouping.simulate import SimulatorSettings, create_sources, simulate
from keygrouping.workload import workload
from keygrouping_service import settings

from .pages import DOCS, ROOT

SHOWN = re.compile(r"^\| `([a-z-]+)`[^|]*\|(.*)\|$", re.M)


def program(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return program(DOCS / "site" / "settings_page.py")


def test_the_page_of_settings_is_current(generator: ModuleType) -> None:
    assert generator.PAGE.read_text() == generator.render(), "run `make docs`"


def test_every_setting_has_a_meaning(generator: ModuleType) -> None:
    assert list(generator.without_meaning()) == []


def test_every_section_is_on_the_page(generator: ModuleType) -> None:
    own = {kind.section for kind in generator.OWN.values()}
    assert own | {"PROBE", "LOCAL", "INSPECT", "APP"} == set(settings.SECTIONS)


def test_the_page_of_http_interfaces_is_current() -> None:
    page = program(DOCS / "site" / "http_page.py")
    assert page.PAGE.read_text() == page.render(), "run `make docs`"


def test_the_schema_of_a_job_is_current() -> None:
    page = program(DOCS / "site" / "job_schema.py")
    assert page.PAGE.read_text() == page.render(), "run `make docs`"


def test_drawings_are_current() -> None:
    for name, draw in program(DOCS / "images" / "concepts.py").DRAWINGS.items():
        assert (DOCS / "images" / f"{name}.svg").read_text() == draw(), "run `make docs`"


def figures(page: Path) -> dict[str, list[str]]:
    """The numbers in a page's table of groupings, by the grouping's name, in order."""
    rows = SHOWN.findall(page.read_text())
    return {name: re.findall(r"\d+\.\d{2,}", row) for name, row in rows if name in grouping.names()}


def test_all_groupings_are_compared() -> None:
    shown = figures(DOCS / "choosing.md")
    assert shown.keys() == set(grouping.names())
    assert {len(numbers) for numbers in shown.values()} == {4}


@pytest.mark.parametrize("name", ["key", "pkg", "level-fill"])
def test_figures_of_groupings_are_those_of_the_simulator(name: str) -> None:
    sources = create_sources(name, 10, 5)
    stream = workload("country-skew-80", 400_000, 0)
    last = simulate(stream, sources, SimulatorSettings(service_time=0.01), interval=50_000).intervals[-1].measures
    assert figures(DOCS / "choosing.md")[name][:2] == [f"{last.lambda_:.3f}", f"{last.dist_cost:.3f}"]


def test_the_readme_has_the_same_figures() -> None:
    whole = figures(DOCS / "choosing.md")
    short = figures(ROOT / "README.md")
    assert len(short) == 7
    for name, numbers in short.items():
        assert [float(number) for number in numbers] == [round(float(number), 2) for number in whole[name][:2]], name
