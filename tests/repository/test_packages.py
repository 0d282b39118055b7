"""What the packages of the workspace say of themselves, without building them."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKSPACE = tomllib.loads((ROOT / "pyproject.toml").read_text())
MEMBERS = sorted(
    folder
    for pattern in WORKSPACE["tool"]["uv"]["workspace"]["members"]
    for folder in ROOT.glob(pattern)
    if (folder / "pyproject.toml").is_file()
)
PROJECTS: dict[str, dict[str, Any]] = {
    str(folder.relative_to(ROOT)): tomllib.loads((folder / "pyproject.toml").read_text()) for folder in MEMBERS
}

each_package = pytest.mark.parametrize("package", PROJECTS)


def requirements(package: str) -> list[str]:
    """All that a package requires, its extras included."""
    project = PROJECTS[package]["project"]
    return [
        *project["dependencies"],
        *(one for extra in project.get("optional-dependencies", {}).values() for one in extra),
    ]


def test_a_dependency_has_the_same_range_wherever_it_is_required() -> None:
    ranges = defaultdict(set)
    for package in PROJECTS:
        for requirement in requirements(package):
            name, said = re.fullmatch(r"([\w.-]+)(?:\[[^]]*\])?(.*)", requirement).groups()  # type: ignore[union-attr]
            ranges[name].add(said)
    assert {name: said for name, said in ranges.items() if len(said) > 1} == {}


def test_what_is_used_beyond_its_interface_has_an_upper_bound() -> None:
    bounds = {one for package in PROJECTS for one in requirements(package) if re.match(r"aiokafka\b", one)}
    assert all("<" in bound for bound in bounds), bounds


def test_every_package_is_in_the_import_contracts() -> None:
    named = {PROJECTS[package]["tool"]["uv"]["build-backend"]["module-name"] for package in PROJECTS}
    assert set(WORKSPACE["tool"]["importlinter"]["root_packages"]) == named
    layers, _, io = WORKSPACE["tool"]["importlinter"]["contracts"]
    assert {module for layer in layers["layers"] for module in layer.split(" | ")} == named
    assert io["source_modules"] == ["keygrouping"]


@each_package
def test_it_is_installed_by_the_workspace(package: str) -> None:
    name = PROJECTS[package]["project"]["name"]
    assert name in {re.split(r"[\[<>=]", one)[0] for one in WORKSPACE["project"]["dependencies"]}
