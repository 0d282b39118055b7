"""The observer's settings."""

import sys

import pytest
from keygrouping_observer.cli import main
from keygrouping_service.settings import EXIT_SETTINGS


def test_missing_settings_stop_the_start_with_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KEYGROUPING_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("KEYGROUPING_JOB", raising=False)
    monkeypatch.setenv("KEYGROUPING_OBSERVER_ROUTER_URL", "router:8000")
    monkeypatch.setattr(sys, "argv", ["keygrouping-observer"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == EXIT_SETTINGS
    names = {line.split(":")[0] for line in capsys.readouterr().err.splitlines()}
    assert names == {"KEYGROUPING_BOOTSTRAP_SERVERS", "KEYGROUPING_JOB", "KEYGROUPING_OBSERVER_ROUTER_URL"}
