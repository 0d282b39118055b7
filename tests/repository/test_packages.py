"""What the packages of the workspace say of themselves, without building them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    # The job has the connectors of two versions, and refuses 4.1 when it starts; a user's program brings its own Spark.
    assert ranges.pop("pyspark") == {">=4.0.5,!=4.1.*,<4.3", ">=4.0,<5"}
    assert {name: said for name, said in ranges.items() if len(said) > 1} == {}


def test_the_operator_is_told_the_spark_that_images_have() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    (locked,) = (each["version"] for each in lock["package"] if each["name"] == "pyspark")
    template = (ROOT / "helm" / "keygrouping" / "templates" / "spark" / "sparkapplication.yaml").read_text()
    assert re.findall(r"sparkVersion: (\S+)", template) == [locked]


def test_what_is_used_beyond_its_interface_has_an_upper_bound() -> None:
    bounds = {one for package in PROJECTS for one in requirements(package) if re.match(r"aiokafka\b", one)}
    assert all("<" in bound for bound in bounds), bounds


def test_every_package_is_in_the_import_contracts() -> None:
    named = {PROJECTS[package]["tool"]["uv"]["build-backend"]["module-name"] for package in PROJECTS}
    assert set(WORKSPACE["tool"]["importlinter"]["root_packages"]) == named
    contracts = {contract["name"]: contract for contract in WORKSPACE["tool"]["importlinter"]["contracts"]}
    layers = contracts["Packages import downward, and no service imports another"]["layers"]
    assert {module for layer in layers for module in layer.split(" | ")} == named


def versions(root: Path) -> dict[str, str]:
    """Every place that holds the version, and what it says."""
    chart = yaml.safe_load((root / "helm" / "keygrouping" / "Chart.yaml").read_text())
    lock = tomllib.loads((root / "uv.lock").read_text())
    files = [root / "pyproject.toml", *(root / package / "pyproject.toml" for package in PROJECTS)]
    return {
        **{str(file): tomllib.loads(file.read_text())["project"]["version"] for file in files},
        **{f"{one['name']} in uv.lock": one["version"] for one in lock["package"] if "registry" not in one["source"]},
        **{f"{name} of the chart": chart[name] for name in ("version", "appVersion")},
    }


def test_all_have_the_version_of_the_workspace() -> None:
    """`make version TO=...` sets it."""
    assert set(versions(ROOT).values()) == {WORKSPACE["project"]["version"]}, versions(ROOT)


def test_one_command_gives_all_another_version(tmp_path: Path) -> None:
    files = ["Makefile", "pyproject.toml", "uv.lock", "helm/keygrouping/Chart.yaml"]
    for name in (*files, *(f"{package}/pyproject.toml" for package in PROJECTS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--silent", "version", "TO=7.8.9"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert set(versions(tmp_path).values()) == {"7.8.9"}, versions(tmp_path)
    before, after = ((folder / "uv.lock").read_text().splitlines() for folder in (ROOT, tmp_path))
    assert sum(old != new for old, new in zip(before, after, strict=True)) == len(PROJECTS) + 1


def test_no_image_has_a_version_of_its_own() -> None:
    dockerfiles = [*ROOT.glob("*/Dockerfile"), *ROOT.glob("services/*/Dockerfile")]
    assert dockerfiles
    assert {line for file in dockerfiles for line in re.findall(r"^ARG VERSION.*$", file.read_text(), re.M)} == {
        "ARG VERSION="
    }


SAME = ("license", "license-files", "readme", "requires-python", "authors", "keywords", "classifiers", "version")


@each_package
def test_its_metadata_is_that_of_all_but_for_name_and_description(package: str) -> None:
    project, library = (PROJECTS[name]["project"] for name in (package, "libs/keygrouping"))
    assert {field: project.get(field) for field in SAME} == {field: library[field] for field in SAME}
    assert project["description"].endswith(".")
    assert library["requires-python"] == WORKSPACE["project"]["requires-python"] == ">=3.11"


@each_package
def test_license_and_readme_are_there(package: str) -> None:
    folder = ROOT / package
    assert (folder / "LICENSE").samefile(ROOT / "LICENSE")
    title, *_ = (folder / "README.md").read_text().splitlines()
    assert title == f"# {PROJECTS[package]['project']['name']}"


@each_package
def test_it_is_installed_by_the_workspace(package: str) -> None:
    name = PROJECTS[package]["project"]["name"]
    assert name in {re.split(r"[\[<>=]", one)[0] for one in WORKSPACE["project"]["dependencies"]}
