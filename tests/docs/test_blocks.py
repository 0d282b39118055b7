"""Every block of code in README, tutorials and how-to pages is tried: here, or by the test that is named here.

Tutorials are also executed as a whole: `test_laptop.py`, `test_existing_topic.py`, `tests/cluster/test_tutorial.py`.

Python is executed, page by page. JSON and YAML are checked by what will read them. Each shell command is recognised by
one of `COMMANDS`: it is executed here, checked against the program that it starts, or executed by another test.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import pytest
import yaml
from keygrouping import cli as simulator
from keygrouping.grouping import registry
from keygrouping.job import JobSpec
from keygrouping_local import cli as local
from keygrouping_service.settings import PREFIX

from .pages import ROOT, TAUGHT, all_blocks, blocks

Check = Callable[[str, Path], None]
SCHEMA = json.loads((ROOT / "helm/keygrouping/values.schema.json").read_text())
SETTINGS = (ROOT / "docs/reference/settings.md").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
ELSEWHERE = {"existing-topic.md": "tests/docs/test_existing_topic.py::test_the_tutorial_works"}
"""Pages that a test executes as a whole, from the first command to the last."""
PYSPARK = "spark-jobs/tests/test_manual.py::test_the_page_on_pyspark_works"


def by(test: str) -> Check:
    """The command is executed by this test (`path::name`)."""

    def check(command: str, folder: Path) -> None:
        del command, folder
        path, name = test.split("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.M), f"there is no test {test}"

    return check


def not_here(reason: str) -> Check:
    """The command can't be executed by a test, for this reason."""

    def check(command: str, folder: Path) -> None:
        assert reason, (command, folder)

    return check


def check_make(command: str, folder: Path) -> None:
    """The target exists; the options of `make run` are those of the program, whose runs have tests of their own."""
    _, target, *given = shlex.split(command)
    assert target in TARGETS, command
    options = dict(word.split("=", 1) for word in given)
    assert options.keys() <= {"ARGS", "REGISTRY", "TAG", "BUILD_ARGS"}
    if target == "run":
        chosen = local._parser().parse_args(shlex.split(options.get("ARGS", "")))
        by(LAPTOP)(command, folder)
        by(ONCE if chosen.once else LIVE)(command, folder)


def check_helm(command: str, folder: Path) -> None:
    """The chart has the values that are set."""
    del folder
    words = shlex.split(command)
    for place, word in enumerate(words):
        if word == "--set":
            path, _, value = words[place + 1].partition("=")
            given: Any = yaml.safe_load(value)
            for name in reversed(path.split(".")):
                given = {name: given}
            jsonschema_rs.validate(SCHEMA, given)
    assert "helm/keygrouping" in words or words[1] in ("test", "uninstall"), command


def simulate(command: str, folder: Path) -> None:
    """Executes it on fewer events."""
    del folder
    simulator.main([*shlex.split(command)[1:], "--events", "2000", "--interval", "1000"])


def check_names(command: str, folder: Path) -> None:
    """The setting exists."""
    del folder
    names = re.findall(rf"\b{PREFIX}[A-Z_]+", command)
    assert names and all(f"`{name}`" in SETTINGS for name in names), command


ONCE = "libs/local/tests/test_run.py::test_once_ends_by_itself_with_all_that_the_oracle_expects"
LIVE = "libs/local/tests/test_run.py::test_a_live_run_ends_on_sigterm_and_leaves_no_process"
LAPTOP = "tests/docs/test_laptop.py::test_the_tutorial_works"
CLUSTER = "tests/cluster/test_tutorial.py::test_the_tutorial_works"
COMMANDS: Mapping[str, Check] = {
    r"make run": check_make,
    r"make (install|lint|test|site|docs|images)\b": check_make,
    r"helm (install|upgrade|test|uninstall)": check_helm,
    r"keygrouping simulate": simulate,
    rf"export {PREFIX}": check_names,
    r"ROUTER=http|VERSION=\$\(curl": not_here("it is the address, or the version, that the calls after it need"),
    r'curl .*"\$ROUTER': by("services/router/tests/test_manuals.py::test_every_call_works_one_after_the_other"),
    r"PRODUCER=http": not_here("it is the address that the call after it needs"),
    r'curl .*"\$PRODUCER/workload"': by(
        "services/producer/tests/test_api.py::test_a_change_of_workload_begins_a_run_and_keeps_what_is_left_out"
    ),
    r"docker push": not_here("it needs a registry"),
    r"kubectl -n streams port-forward": by(CLUSTER),
    r"kubectl -n streams delete pod": by(CLUSTER),
    r"kubectl create secret": not_here("it needs your certificates and passwords"),
    r"JOB=\$\(python|spark-submit": by(
        "spark-jobs/tests/test_job.py::test_results_are_exact_whenever_the_driver_is_killed"
    ),
}
"""What tries a command, by its beginning."""


def faults_of(command: str, folder: Path) -> str | None:
    """What is wrong with a shell command; None: nothing."""
    known = [check for pattern, check in COMMANDS.items() if re.match(pattern, command)]
    if len(known) != 1:
        return f"{len(known)} of COMMANDS fit"
    try:
        known[0](command, folder)
    except (AssertionError, SystemExit, jsonschema_rs.ValidationError) as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("page", TAUGHT, ids=lambda page: page.name)
def test_every_command_is_tried(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if page.name in ELSEWHERE:
        by(ELSEWHERE[page.name])("", tmp_path)
        return
    commands = [(block.place, command) for block in blocks(page, "sh") for command in block.commands()]
    assert [(place, c, fault) for place, c in commands if (fault := faults_of(c, tmp_path))] == []
    capsys.readouterr()


@pytest.mark.parametrize(
    "page", [*TAUGHT, ROOT / "libs/keygrouping/README.md"], ids=lambda page: page.parent.name + page.name
)
def test_python_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in ELSEWHERE:
        return
    if page.name == "pyspark.md":
        by(PYSPARK)("", page)
        return
    module = ModuleType("a_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks(page, "python"):
        exec(compile("\n" * block.line + block.text, block.place, "exec"), module.__dict__)


@pytest.mark.parametrize("block", all_blocks("json"), ids=lambda block: block.place)
def test_json_is_a_job(block: Any) -> None:
    assert JobSpec.from_json(block.text).aggregates


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=lambda block: block.place)
def test_yaml_is_values_of_the_chart(block: Any) -> None:
    jsonschema_rs.validate(SCHEMA, yaml.safe_load(block.text))


@pytest.mark.parametrize("block", all_blocks("toml"), ids=lambda block: block.place)
def test_toml_adds_a_class_of_its_page(block: Any) -> None:
    points = tomllib.loads(block.text)["project"]["entry-points"][registry.PLUGINS]
    for value in points.values():
        name = value.partition(":")[2]
        assert any(f"class {name}(" in code.text for code in blocks(block.page, "python"))


def test_no_other_language_goes_unnoticed() -> None:
    assert {block.language for block in all_blocks()} <= {"sh", "python", "json", "yaml", "toml", "csv"}


@pytest.mark.parametrize(
    "wrong",
    [
        "make nothing",
        "make run ARGS='--twice'",
        "helm install keygrouping helm/keygrouping --set router.replica=2",
        "keygrouping simulate --grouping none --workload zipf --workers 2",
        "export KEYGROUPING_ROUTER_WORKER=4",
        "rm -rf /",
    ],
)
def test_wrong_commands_are_found(wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults_of(wrong, tmp_path)
    capsys.readouterr()
