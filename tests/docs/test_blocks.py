"""Every block of code in README, tutorials, how-to pages and others is tried: here, or by the test that is named here.

Tutorials are executed as a whole, see `WHOLE`. Python is executed, page by page. JSON and YAML are checked by what will
read them. Each shell command is recognised by one of `COMMANDS`: it is executed here, checked against the program that
it starts, or executed by another test or by CI.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import pytest
import yaml
from chart_files import over_defaults
from keygrouping import aggregate
from keygrouping import cli as simulator
from keygrouping.grouping import registry
from keygrouping.job import JobSpec
from keygrouping_local import cli as local
from keygrouping_service.settings import PREFIX

from .pages import DOCS, ROOT, TAUGHT, all_blocks, blocks

Check = Callable[[str, Path], None]
SCHEMA = json.loads((ROOT / "helm/keygrouping/values.schema.json").read_text())
SETTINGS = (ROOT / "docs/reference/settings.md").read_text()
CI = ROOT / ".ci/run"
LAPTOP, CLUSTER, TOPIC, LANES = (
    DOCS / "tutorials" / f"{name}.md" for name in ("laptop", "cluster", "existing-topic", "lanes")
)
CONSUMERS = DOCS / "howto" / "consumers.md"
APPS = DOCS / "howto" / "app-on-kubernetes.md"
WHOLE = {
    LAPTOP: "tests/docs/test_laptop.py::test_the_tutorial_works",
    CLUSTER: "tests/cluster/test_tutorial.py::test_the_tutorial_works",
    TOPIC: "tests/docs/test_existing_topic.py::test_the_tutorial_works",
    LANES: "tests/docs/test_lanes.py::test_the_tutorial_works",
    CONSUMERS: "tests/docs/test_consumers.py::test_the_page_works",
    APPS: "tests/cluster/test_app.py::test_the_page_works",
}
"""Pages that a test executes as a whole, from the first command to the last."""
OBJECTS = {(DOCS / "howto" / "scaling.md", "ScaledObject"): "tests/monitoring/test_keda.py"}
"""Objects of Kubernetes, and who tests them."""
PYSPARK = "libs/pyspark/tests/test_manual.py::test_the_page_on_pyspark_works"


def by(test: str) -> Check:
    """The command is executed by this test (`path::name`)."""

    def check(command: str, folder: Path) -> None:
        del command, folder
        path, name = test.split("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.M), f"there is no test {test}"

    return check


def by_ci(command: str, folder: Path) -> None:
    """CI executes the command as it stands."""
    del folder
    assert command in CI.read_text().splitlines(), f"{CI} has no line {command!r}"


def check_run(command: str, folder: Path) -> None:
    """It is on the tutorial, too; or its options are those of the program, whose runs have tests of their own."""
    if command in commands(LAPTOP):
        by(WHOLE[LAPTOP])(command, folder)
        return
    options = dict(word.split("=", 1) for word in shlex.split(command)[2:])
    assert options.keys() == {"ARGS"}
    chosen = local._parser().parse_args(shlex.split(options["ARGS"]))
    by(ONCE if chosen.once else LIVE)(command, folder)


def on_a_cluster(command: str, folder: Path) -> None:
    """A test executes its page on a cluster; Helm's values are those of the chart."""
    if command.startswith("helm"):
        check_values(command)
    tests = [test for page, test in ON_A_CLUSTER.items() if command in commands(page)]
    assert tests, "it is on none of the pages that are executed on a cluster"
    for test in tests:
        by(test)(command, folder)


def check_values(command: str) -> None:
    """The chart has the values that are set."""
    words = shlex.split(command)
    for option, setting in pairwise(words):
        if option == "--set":
            for assignment in setting.split(","):
                path, _, value = assignment.partition("=")
                given: Any = yaml.safe_load(value)
                for name in reversed(path.split(".")):
                    given = {name: given}
                jsonschema_rs.validate(SCHEMA, over_defaults(given))


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
README = ROOT / "README.md"
DASHBOARDS = DOCS / "dashboards.md"
ON_A_CLUSTER = {
    README: "tests/cluster/test_readme.py::test_the_block_works",
    CLUSTER: WHOLE[CLUSTER],
    DASHBOARDS: "tests/cluster/test_dashboards.py::test_the_command_adds_to_a_release",
}
"""What executes a page's commands for a cluster."""
CALLS = "services/router/tests/api/test_manuals.py::test_every_call_works_one_after_the_other"
COMMANDS: Mapping[str, Check] = {
    r"make run": check_run,
    r"make (install|lint|test)$": by_ci,
    r"make test ARGS=": by("tests/docs/test_make.py::test_a_part_of_the_tests_runs"),
    r"make (images|push) |helm |kubectl -n streams |TOKEN=\$\(kubectl": on_a_cluster,
    r"keygrouping simulate": simulate,
    r"keygrouping inspect --topic": by(
        "libs/service/tests/kafka/test_topic_reading.py::test_the_command_reads_all_and_leaves_no_trace"
    ),
    r"pip install (\./libs/(app|msk-iam)|'\./libs/keygrouping\[pyspark)": by(
        "tests/repository/test_wheels.py::test_it_is_imported_where_only_its_dependencies_are"
    ),
    rf"export {PREFIX}": check_names,
    r"export AWS_REGION=": by("libs/msk-iam/tests/test_msk_iam.py::test_the_region_is_that_of_the_environment"),
    r'ROUTER=http|(curl|VERSION=\$\(curl) .*"\$ROUTER/': by(CALLS),
    r"amtool silence": by(
        "tests/monitoring/test_alertmanager.py::test_the_page_silences_late_results_of_one_namespace"
    ),
    r"kubectl create secret": by("tests/cluster/test_howto.py::test_the_secrets_are_those_of_the_values"),
    r"JOB=\$\(python|spark-submit": by(
        "spark-jobs/tests/test_job.py::test_results_are_exact_whenever_the_driver_is_killed"
    ),
}
"""What tries a command, by its beginning."""


def commands(page: Path) -> list[str]:
    """The commands of a page."""
    return [command for block in blocks(page, "sh") for command in block.commands()]


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
    if page in WHOLE:
        by(WHOLE[page])("", tmp_path)
    if page in (TOPIC, LANES, CONSUMERS, APPS):
        return
    shown = [(block.place, command) for block in blocks(page, "sh") for command in block.commands()]
    assert [(place, c, fault) for place, c in shown if (fault := faults_of(c, tmp_path))] == []
    capsys.readouterr()


def test_every_tutorial_is_executed_as_a_whole() -> None:
    assert WHOLE.keys() == {*(DOCS / "tutorials").glob("*.md"), CONSUMERS, APPS}


def test_it_is_installed_alike_on_both_pages() -> None:
    readme, manual = (
        [block.commands() for block in blocks(page, "sh") if "helm test" in block.text]
        for page in (README, DOCS / "kubernetes.md")
    )
    assert readme == manual


@pytest.mark.parametrize(
    "page", [*TAUGHT, ROOT / "libs/keygrouping/README.md"], ids=lambda page: page.parent.name + page.name
)
def test_python_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page in (TOPIC, LANES, CONSUMERS):
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
def test_yaml_is_values_of_the_chart_or_an_object_with_a_test_of_its_own(block: Any) -> None:
    content = yaml.safe_load(block.text)
    if "apiVersion" in content:
        assert (block.page, content["kind"]) in OBJECTS
    elif "scrape_configs" in content:
        by("tests/monitoring/test_releases.py::test_the_page_shows_a_prometheus_how_to_scrape")("", Path())
    else:
        jsonschema_rs.validate(SCHEMA, over_defaults(content))


@pytest.mark.parametrize("block", all_blocks("toml"), ids=lambda block: block.place)
def test_toml_adds_a_class_of_its_page(block: Any) -> None:
    groups = tomllib.loads(block.text)["project"]["entry-points"]
    assert groups.keys() <= {registry.PLUGINS, aggregate.PLUGINS}
    for value in [value for points in groups.values() for value in points.values()]:
        name = value.partition(":")[2]
        assert any(f"class {name}(" in code.text for code in blocks(block.page, "python"))


def test_no_other_language_goes_unnoticed() -> None:
    assert {block.language for block in all_blocks()} <= {"sh", "python", "json", "yaml", "toml", "csv", "dockerfile"}


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ("make nothing", "0 of COMMANDS"),
        ("make run ARGS='--twice'", "SystemExit"),
        ("make test-matrix", "0 of COMMANDS"),
        ("make images TAG=1", "none of the pages"),
        ("helm install keygrouping helm/keygrouping --set router.replica=2", "ValidationError"),
        ("helm install keygrouping helm/another", "none of the pages"),
        ("helm upgrade keygrouping helm/keygrouping --set router.replicas=2,metrics.runbook=x", "ValidationError"),
        ("keygrouping simulate --grouping none --workload zipf --workers 2", "SystemExit"),
        ("export KEYGROUPING_ROUTER_WORKER=4", "AssertionError"),
        ("rm -rf /", "0 of COMMANDS"),
    ],
)
def test_wrong_commands_are_found(wrong: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fault in (faults_of(wrong, tmp_path) or "")
    capsys.readouterr()
