import sys

import pytest
from keygrouping_service.settings import EXIT_SETTINGS
from keygrouping_worker.cli import main
from keygrouping_worker.settings import WorkerSettings, ordinal_of
from pydantic import ValidationError

JOB = '{"aggregates": [{"name": "n", "op": "count"}]}'


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("KEYGROUPING_JOB", JOB)


@pytest.mark.parametrize(
    ("pod", "ordinal"),
    [("keygrouping-worker-3", 3), ("a-0", 0), ("laptop", None), ("worker-7d9f5c-x2x", None), ("", None), ("3", None)],
)
def test_the_ordinal_is_the_number_at_the_end_of_the_pods_name(
    pod: str, ordinal: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTNAME", pod)
    assert ordinal_of(pod) == WorkerSettings().ordinal == ordinal


def test_a_given_ordinal_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "keygrouping-worker-3")
    monkeypatch.setenv("KEYGROUPING_WORKER_ORDINAL", "5")
    assert WorkerSettings().ordinal == 5


def test_wrong_settings_stop_the_start_with_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEYGROUPING_WORKER_ORDINAL", "-1")
    monkeypatch.setenv("KEYGROUPING_WORKER_FLUSH_INTERVAL", "soon")
    monkeypatch.setenv("KEYGROUPING_WORKER_FLUSHINTERVAL", "1")
    monkeypatch.setattr(sys, "argv", ["keygrouping-worker"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == EXIT_SETTINGS
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    for name in ("ORDINAL", "FLUSH_INTERVAL", "FLUSHINTERVAL"):
        assert any(line.startswith(f"KEYGROUPING_WORKER_{name}:") for line in lines)


def test_classes_of_aggregates_that_can_not_be_used_stop_the_start_with_the_other_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    aggregates = '[{"name": "a", "op": "no_module:Peak", "field": "x"}, {"name": "s", "op": "sum"}]'
    monkeypatch.setenv("KEYGROUPING_JOB", f'{{"aggregates": {aggregates}}}')
    monkeypatch.setenv("KEYGROUPING_WORKER_ORDINAL", "-1")
    monkeypatch.setattr(sys, "argv", ["keygrouping-worker"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == EXIT_SETTINGS
    said = capsys.readouterr().err
    assert "op 'no_module:Peak' can't be loaded: No module named 'no_module'; every process of the job" in said
    assert "put its folder on PYTHONPATH" in said
    assert "op 'sum' needs a field" in said
    assert "KEYGROUPING_WORKER_ORDINAL" in said


@pytest.mark.parametrize("name", ["START", "UNTIL", "IDLE_TIMEOUT"])
def test_who_does_not_read_the_input_is_not_told_how(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"KEYGROUPING_WORKER_{name}", "30" if name == "IDLE_TIMEOUT" else "latest")
    with pytest.raises(ValidationError, match=f"KEYGROUPING_WORKER_{name}: routers read the input"):
        WorkerSettings()
    monkeypatch.setenv("KEYGROUPING_STAGES", "combine")
    WorkerSettings()
