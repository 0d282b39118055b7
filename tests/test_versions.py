"""Every command tells its version, before it reads any setting."""

import sys
from importlib.metadata import entry_points

import pytest
from keygrouping.version import version

COMMANDS = sorted(
    (each for each in entry_points(group="console_scripts") if each.name.startswith("keygrouping")),
    key=lambda each: each.name,
)


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
