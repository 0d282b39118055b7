"""Every command, and every module that can be run, tells its version, before it reads any setting."""

import runpy
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from keygrouping.version import version

COMMANDS = sorted(
    (each for each in entry_points(group="console_scripts") if each.name.startswith("keygrouping")),
    key=lambda each: each.name,
)

ROOT = Path(__file__).parents[1]
PARTS = ("libs/*/src", "services/*/src", "spark-jobs/src", "load-generators/src")
SCRIPTS = {"keygrouping_local.tether"}
"""What a parent puts before the command of a child: it knows nothing of us, and takes a command, not options."""


def modules() -> list[str]:
    """All that `python -m` runs."""
    files = [path for part in PARTS for folder in ROOT.glob(part) for path in folder.rglob("*.py")]
    found = {".".join(path.relative_to(source_of(path)).with_suffix("").parts): path for path in files}
    runs = {name for name, path in found.items() if '__name__ == "__main__"' in path.read_text()}
    packages = {name.removesuffix(".__main__") for name in found if name.endswith(".__main__")}
    return sorted({name for name in runs if not name.endswith(".__main__")} | packages)


def source_of(path: Path) -> Path:
    """The folder `src` that a module lies in."""
    return next(folder for folder in path.parents if folder.name == "src")


def test_all_modules_that_run_are_known() -> None:
    services = {
        "router",
        "worker",
        "aggregator",
        "observer",
        "producer",
        "spark",
        "local",
        "load",
        "service.kafka.topics",
    }
    assert set(modules()) >= {"keygrouping", *(f"keygrouping_{name}" for name in services)} | SCRIPTS


@pytest.mark.parametrize("module", sorted(set(modules()) - SCRIPTS))
@pytest.mark.filterwarnings("ignore:.*found in sys.modules.*:RuntimeWarning")
def test_a_module_that_runs_tells_its_version(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KEYGROUPING_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setattr(sys, "argv", [module, "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out, printed.err) == (0, f"keygrouping {version()}\n", "")


def test_all_commands_are_known() -> None:
    names = {command.name.removeprefix("keygrouping").removeprefix("-") for command in COMMANDS}
    services = {"router", "worker", "aggregator", "observer", "producer"}
    assert names >= services | {"", "run", "load", "spark"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_tells_its_version(
    command: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KEYGROUPING_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setattr(sys, "argv", [command.name, "--version"])  # type: ignore[attr-defined]
    with pytest.raises(SystemExit) as ended:
        command.load()()  # type: ignore[attr-defined]
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out, printed.err) == (0, f"keygrouping {version()}\n", "")
