"""The command `keygrouping app`: which app is meant, and what is told if there is none."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from keygrouping_app import App, AppError
from keygrouping_app.commands import run
from keygrouping_app.commands.target import load

PROGRAM = """
from keygrouping.app import App, Event

app = App("billing", brokers="localhost:1")
other = App("")

@app.on("orders")
async def charge(event: Event) -> None: ...

@other.on("orders", concurrency=0)
async def refund(event: Event) -> None: ...

number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def module(here: Path, name: str, text: str = PROGRAM) -> str:
    """Each test has a module of another name: a module is imported once."""
    (here / f"{name}.py").write_text(text)
    return name


def test_the_app_is_found_in_the_folder(here: Path) -> None:
    app = load(f"{module(here, 'shop_one')}:app")
    assert isinstance(app, App)
    assert app.name == "billing"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("shop_two", "'shop_two' is no MODULE:APP: name the module and the App in it, such as billing:app"),
        (":app", "':app' is no MODULE:APP"),
        ("shop_none:app", "no module 'shop_none' in "),
        ("shop_two.deeper:app", "no module 'shop_two.deeper' in "),
        ("shop_two:charged", "shop_two:charged is missing; it has shop_two:app, shop_two:other"),
        ("shop_two:number", "shop_two:number is no App but int; it has shop_two:app, shop_two:other"),
    ],
)
def test_what_is_no_app_is_told_with_what_there_is(here: Path, target: str, told: str) -> None:
    module(here, "shop_two")
    with pytest.raises(AppError, match=told.replace("[", r"\[")):
        load(target)


def test_a_module_without_app_is_told(here: Path) -> None:
    with pytest.raises(AppError, match=r"shop_empty:app is missing; it has no App at its top level"):
        load(f"{module(here, 'shop_empty', '')}:app")


def test_what_the_module_itself_cannot_import_is_not_taken_for_the_module(here: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_bank"):
        load(f"{module(here, 'shop_broken', 'import no_such_bank')}:app")


def test_faults_are_told_one_a_line_and_end_it_with_2(here: Path) -> None:
    shown = command(here, "app", f"{module(here, 'shop_three')}:other")
    assert shown.returncode == 2
    assert shown.stderr.splitlines() == [
        "keygrouping app: the app has no name: App('billing'); it is its consumer group's",
        "keygrouping app: refund on 'orders': concurrency is 0: give a number from 1 to 100000",
    ]


def test_brokers_that_are_not_there_are_told_in_a_line(here: Path) -> None:
    command = ["-m", "keygrouping", "app", f"{module(here, 'unreachable')}:app"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("keygrouping app: KafkaConnectionError: Unable to bootstrap from ")
    assert "the App names them, or KEYGROUPING_BOOTSTRAP_SERVERS or --bootstrap-servers" in done.stderr


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ("'', max_events=0", 2, ["the app has no name: App('billing')", "max_events, max_bytes: give 1 or more"]),
        ("'billing', brokers='127.0.0.1:1'", 1, ["KafkaConnectionError: Unable to bootstrap from "]),
    ],
)
def test_a_program_that_runs_its_own_app_ends_in_the_same_way(
    here: Path, given: str, code: int, told: list[str]
) -> None:
    program = f"from keygrouping.app import App\napp = App({given})\napp.on('orders')(lambda event: None)\napp.run()\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=here, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("keygrouping app: ")]
    assert done.returncode == code and "Traceback" not in done.stderr
    for line, begin in zip(lines, told, strict=True):
        assert line.startswith(f"keygrouping app: {begin}")


def test_the_brokers_of_command_or_environment_count(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[str]()
    monkeypatch.setattr(App, "run", lambda app: used.append(app.brokers))
    target = f"{module(here, 'shop_four')}:app"
    run_command(target)
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "by-environment:9092")
    run_command(target)
    run_command(target, "--bootstrap-servers", "by-option:9092")
    assert used == ["localhost:1", "by-environment:9092", "by-option:9092"]


def test_a_check_says_whether_the_app_could_run_and_runs_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{module(here, 'shop_five')}:app"
    monkeypatch.setenv("KEYGROUPING_APP_GROUP", "billing-2")
    run_command(target, "--check")
    assert capsys.readouterr().out == f"{target} can run, as group billing-2\n"
    monkeypatch.setenv("KEYGROUPING_APP_STOP_SECONDS", "30")
    with pytest.raises(SystemExit) as ended:
        run_command(target, "--check")
    assert ended.value.code == 2
    assert "charge on 'orders' has timeout=60 s" in capsys.readouterr().err


def test_a_check_tells_all_that_is_wrong_in_the_environment_at_once(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("LOG_FORMAT", "yaml"), ("APP_PORT", "http"), ("SECURITY_PROTOCOL", "TLS")):
        monkeypatch.setenv(f"KEYGROUPING_{name}", value)
    with pytest.raises(SystemExit) as ended:
        run_command(f"{module(here, 'shop_six')}:app", "--check")
    assert ended.value.code == 2
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "keygrouping app: KEYGROUPING_LOG_FORMAT is 'yaml': give text, json"
    assert ["KEYGROUPING_APP_PORT" in others[0], "KEYGROUPING_SECURITY_PROTOCOL" in others[1]] == [True, True]


def run_command(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    run.declare(parser)
    run.run(parser.parse_args(arguments))


def command(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "keygrouping", *arguments]
    return subprocess.run(line, cwd=here, capture_output=True, text=True, check=False, timeout=300)


def test_it_is_a_command_of_keygrouping() -> None:
    (point,) = entry_points(group="keygrouping.commands", name="app")
    assert point.load() is run
