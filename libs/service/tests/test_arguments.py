"""Laws of the command line of services."""

import platform

import pytest
from keygrouping.version import version
from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.observability.metrics import exposition


def test_nothing_given_is_nothing_said(capsys: pytest.CaptureFixture[str]) -> None:
    take_no_arguments("keygrouping-router", [])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("given", ["--workers=4", "serve"])
def test_what_is_not_known_is_refused_and_not_ignored(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        take_no_arguments("keygrouping-router", [given])
    assert ended.value.code == 2
    assert f"unrecognized arguments: {given}" in capsys.readouterr().err


def test_the_help_says_where_settings_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        take_no_arguments("keygrouping-router", ["--help"])
    assert ended.value.code == 0
    assert "All settings come from the environment, KEYGROUPING_..." in " ".join(capsys.readouterr().out.split())


def test_every_process_shows_which_build_it_is() -> None:
    wanted = f'keygrouping_build_info{{python="{platform.python_version()}",version="{version()}"}} 1.0'
    assert wanted in exposition().decode()
