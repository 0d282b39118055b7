import sys

import pytest
from keygrouping_aggregator.cli import main
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_service.settings import EXIT_SETTINGS


def test_defaults_need_no_more_than_address_and_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("KEYGROUPING_JOB", '{"aggregates": [{"name": "n", "op": "count"}]}')
    assert AggregatorSettings().group("aggregator") == "keygrouping-aggregator"


def test_missing_settings_stop_the_start_with_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KEYGROUPING_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("KEYGROUPING_JOB", raising=False)
    monkeypatch.setattr(sys, "argv", ["keygrouping-aggregator"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == EXIT_SETTINGS
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["KEYGROUPING_BOOTSTRAP_SERVERS", "KEYGROUPING_JOB"]
