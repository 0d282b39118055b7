"""The command, as from a terminal."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from keygrouping import grouping
from keygrouping.cli import main, plugins, progress
from keygrouping.cli.assignments import assign
from keygrouping.cli.faults import CommandError
from keygrouping.cli.parser import INSTALL
from keygrouping.cli.progress import progress_bar
from keygrouping.cli.report import duration
from keygrouping.grouping import Description
from keygrouping.simulate import SimulatorSettings, create_sources, simulate
from keygrouping.version import version
from keygrouping.workload import workload

SMALL = ["simulate", "--grouping", "pkg", "--workload", "country-skew-80", "--workers", "4", "--events", "3000"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON object that the command prints, and nothing else."""
    main([*arguments, "--json"])
    printed = capsys.readouterr()
    assert printed.err == "" and printed.out.count("\n") == 1
    data: dict[str, Any] = json.loads(printed.out)
    return data


def fault(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that the command says to wrong arguments."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    assert ended.value.code == 2 and printed.out == ""
    assert printed.err.count("\n") == 1 and printed.err.startswith("keygrouping")
    return printed.err


def changed(old: str, new: str) -> list[str]:
    return [new if argument == old else argument for argument in SMALL]


# --- what it prints ---------------------------------------------------------------------------------------------------


def test_the_object_is_the_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, *SMALL, "--sources", "3", "--interval", "1000", "--seed", "7", "--set", "choices=3")
    stream = workload("country-skew-80", 3000, 7)
    sources = create_sources("pkg", 4, 3, {"choices": 3})
    assert data == simulate(stream, sources, interval=1000).to_data()
    assert (data["events"], data["sources"], len(data["intervals"])) == (3000, 3, 3)
    assert data != answer(capsys, *SMALL, "--sources", "3", "--interval", "1000", "--set", "choices=3")


def test_settings_reach_grouping_workload_and_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    zipf = [*changed("country-skew-80", "zipf"), "--set", "z=2.0", "keys=50"]
    data = answer(capsys, *zipf, "--set", "simulator.load=0.5", "--set", "service_time=0.01")
    stream = workload("zipf", 3000, 0, {"z": 2.0, "keys": 50})
    settings = SimulatorSettings(load=0.5, service_time=0.01)
    assert data == simulate(stream, create_sources("pkg", 4, 5), settings).to_data()


def test_the_tables_have_all_that_matters(capsys: pytest.CaptureFixture[str]) -> None:
    main([*SMALL, "--interval", "100"])
    printed = capsys.readouterr()
    assert "pkg on country-skew-80: 4 workers, 5 sources, 3,000 events" in printed.out
    assert "20 of 30 intervals" in printed.out
    factors = ("replication factor", "replication by events")
    for name in ("λ", "STD_DEV", "CV", *factors, "merges", "moved state", "latency p99"):
        assert name in printed.out
    assert max(map(len, printed.out.splitlines())) <= 110
    assert printed.err == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1e-4, "0.1 ms"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (90, "90 s"), (300, "5.0 min"), (float("nan"), "-")],
)
def test_times_are_readable(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("suffix", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_run_can_be_drawn(suffix: str, begin: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / f"run{suffix}"
    main([*SMALL, "--interval", "500", "--plot", str(file)])
    assert file.read_bytes().startswith(begin)
    assert "whole run" in capsys.readouterr().out


def test_a_file_is_read_in_its_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.csv"
    file.write_text("key,weight\n" + "a,1\nb,2\n" * 50 + "c\n")
    arguments = ["simulate", "--grouping", "key", "--workload", str(file), "--workers", "3", "--json"]
    main([*arguments, "--format", "csv", "--set", "key=key", "workload.weight=weight"])
    printed = capsys.readouterr()
    data = json.loads(printed.out)
    assert (data["workload"], data["events"]) == ("events.csv", 100)
    assert "1 bad line" in printed.err and "line 102" in printed.err
    main([*arguments, "--format", "csv", "--set", "key=key", "--events", "7"])
    assert json.loads(capsys.readouterr().out)["events"] == 7


def test_in_a_pipe_progress_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "EVERY_SECONDS", 5.0)
    times = iter([0.0, 1.0, 6.0, 6.0, 7.0, 11.5, 11.5])
    with progress_bar("pkg on \x1b[2J", lambda: next(times)) as bar:
        for done in (1, 10, 20, 75):
            bar(done, 200)
    printed = capsys.readouterr()
    assert printed.err == "pkg on \\x1b[2J: 5%\npkg on \\x1b[2J: 38%\n"
    assert printed.out == ""


def test_simulate_tells_its_progress_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    main(SMALL)
    assert "pkg on country-skew-80: 100%\n" in capsys.readouterr().err


def test_every_command_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["simulate", "--version"], ["inspect", "--version"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert (ended.value.code, capsys.readouterr().out) == (0, f"keygrouping {version()}\n")
    assert version() == metadata.version("keygrouping")


def test_progress_is_a_bar_on_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("pkg on [zipf]") as bar:
        bar(1, 2)
    printed = capsys.readouterr()
    assert "pkg on [zipf]" in printed.err and "50%" in printed.err and printed.out == ""


# --- what it refuses --------------------------------------------------------------------------------------------------


def test_unknown_names_are_told_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    line = fault(capsys, *changed("pkg", "rubbish"))
    assert line.startswith("keygrouping simulate: unknown grouping 'rubbish'; choose from")
    assert all(name in line for name in grouping.names())
    line = fault(capsys, *changed("country-skew-80", "rubbish"))
    assert "unknown workload 'rubbish'; choose from country-skew-R" in line
    line = fault(capsys, *SMALL, "--format", "rubbish")
    assert "unknown format 'rubbish'; choose from" in line
    line = fault(capsys, "rubbish")
    assert "choose from" in line and "simulate" in line
    assert "{simulate" in fault(capsys)
    line = fault(capsys, *SMALL, "--rubbish")
    assert "unknown argument '--rubbish'; usage: keygrouping simulate" in line and "--interval" in line
    assert "--workload, --workers" in fault(capsys, "simulate", "--grouping", "pkg")


@pytest.mark.parametrize("option", ["--workers", "--sources", "--events", "--interval"])
@pytest.mark.parametrize("value", ["0", "1.5", "many"])
def test_numbers_are_checked(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = fault(capsys, *SMALL, option, value)
    assert f"argument {option}: must be an integer, at least 1, not {value!r}" in line


def test_all_faults_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*arguments: str) -> list[str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        assert (ended.value.code, printed.out) == (2, "")
        return printed.err.splitlines()

    workers, deal, unknown = told(*SMALL, "--workers", "x", "--deal", "\x1b", "--rubbish", "5", "--more=1")
    assert "--workers: must be an integer" in workers and "--deal: invalid Deal value: '\\x1b'" in deal
    assert unknown.startswith("keygrouping simulate: unknown argument '--rubbish', '--more=1'; usage: ")
    seed, missing = told("simulate", "--grouping", "pkg", "--seed", "x", "--workload", "zipf")
    assert "--seed" in seed and missing == "keygrouping simulate: the following arguments are required: --workers"
    assert "choose from" in "".join(told("simulat\x1b")) and "\\x1b" in "".join(told("simulat\x1b"))
    grouping, workload, plot = told(*changed("pkg", "x"), "--workload", "y", "--plot", str(tmp_path / "no" / "z.png"))
    assert "unknown grouping 'x'" in grouping and "unknown workload 'y'" in workload and "--plot" in plot
    first, second = told(*SMALL, "--set", "choices", "rubbish=1")
    assert "--set choices: must be name=value" in first and "--set rubbish: unknown setting" in second
    load, choices = told(*SMALL, "--set", "choices=many", "load=-1")
    assert "load must be above 0" in load and "choices must be" in choices
    file = ("inspect", "--file", str(tmp_path / "x.csv"))
    apart, read = ("--salt", "x", "--sample", "5"), ("--key", "x", "--weight", "2", "--groupings", "y")
    options = [line.split(": ")[1].split()[0] for line in told(*file, *apart, *read)]
    assert options == ["--sample", "--salt", "--key", "--groupings"]


@pytest.mark.parametrize("value", ["0", "1.5", "nan", "many"])
def test_a_share_is_checked(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = fault(capsys, "audit", "--recount", value)
    assert f"argument --recount: must be a number from 1e-06 to 1, not {value!r}" in line


def test_settings_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert "must be name=value" in fault(capsys, *SMALL, "--set", "choices")
    line = fault(capsys, *SMALL, "--set", "rubbish=1")
    assert "--set rubbish: unknown setting" in line and "choices" in line and "service_time" in line
    assert "choices must be" in fault(capsys, *SMALL, "--set", "choices=many")
    assert "load must be above 0, not -1" in fault(capsys, *SMALL, "--set", "load=-1")
    assert "speeds must be those of 4 workers, not of 2" in fault(capsys, *SMALL, "--set", "speeds=1,2")


def test_pictures_that_cannot_be_drawn_are_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = fault(capsys, *SMALL, "--plot", str(tmp_path / "run.rubbish"))
    assert "choose from" in line and "png" in line and "svg" in line
    assert "there is no folder" in fault(capsys, *SMALL, "--plot", str(tmp_path / "no" / "run.png"))


def test_files_need_a_format_and_have_to_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.csv"
    file.write_text("key\na\n")
    line = fault(capsys, *changed("country-skew-80", str(file)))
    assert "a file needs its --format; choose from" in line and "csv" in line
    line = fault(capsys, *changed("country-skew-80", str(tmp_path / "none")), "--format", "csv", "--set", "key=key")
    assert "none" in line and "No such file" in line


def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "keygrouping.cli.report", raising=False)
    monkeypatch.setitem(sys.modules, "rich.table", None)
    line = fault(capsys, *SMALL)
    assert "needs the package rich: in the repository's folder, pip install './libs/keygrouping[cli]'" in line


def test_commands_of_a_package_that_is_missing_name_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda **_: [])
    line = fault(capsys, "app", "billing:app", "--bootstrap-servers", "localhost:9092")
    assert line == f"keygrouping app: needs the package keygrouping-app: {INSTALL} './libs/app[cli]' ./libs/kafka\n"


# --- settings as texts ------------------------------------------------------------------------------------------------


def described(name: str, kind: str) -> Description:
    return SimpleNamespace(name=name, kind=kind)  # type: ignore[return-value]


OWNERS: Mapping[str, list[Description]] = {
    "grouping": [
        described("seed", "an integer"),
        described("half_life", "a number or null"),
        described("on", "true or false"),
        described("speeds", "a list of numbers"),
        described("mode", "one of all, head"),
    ],
    "workload": [described("seed", "an integer"), described("key", "a text"), described("weight", "a text or null")],
}


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("half_life=30", "half_life", 30),
        ("half_life=1e-3", "half_life", 0.001),
        ("half_life=null", "half_life", None),
        ("half_life=soon", "half_life", "soon"),
        ("on=false", "on", False),
        ("speeds=1,2.5", "speeds", [1, 2.5]),
        ("speeds=[1,2]", "speeds", [1, 2]),
        ("mode=head", "mode", "head"),
        ("grouping.seed=3", "seed", 3),
    ],
)
def test_texts_become_what_the_setting_wants(text: str, name: str, value: object) -> None:
    assert assign([text], OWNERS) == {"grouping": {name: value}, "workload": {}}


def test_a_text_stays_a_text() -> None:
    assert assign(["key=12", "workload.seed=4"], OWNERS) == {"grouping": {}, "workload": {"key": "12", "seed": 4}}
    assert assign(["key=null"], OWNERS)["workload"] == {"key": "null"}
    assert assign(["weight=null"], OWNERS)["workload"] == {"weight": None}


def test_a_setting_of_both_has_to_say_whose_it_is() -> None:
    with pytest.raises(CommandError, match=r"choose from grouping\.seed, workload\.seed"):
        assign(["seed=1"], OWNERS)


# --- as a program -----------------------------------------------------------------------------------------------------


def program(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, env=dict(os.environ)
    )


def test_it_runs_as_a_module_and_explains_itself() -> None:
    shown = program("-m", "keygrouping", "simulate", "--help").stdout
    for part in (*grouping.names(), "--workload", "country-skew", "service_time", "grouping.key=value"):
        assert part in "".join(shown.split())


def test_the_command_line_is_read_without_numba_and_pictures() -> None:
    code = (
        "import sys, keygrouping.cli; print([name for name in ('numba', 'matplotlib', 'rich') if name in sys.modules])"
    )
    assert program("-c", code).stdout.strip() == "[]"
