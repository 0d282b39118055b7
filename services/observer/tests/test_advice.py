import asyncio
import contextlib
from pathlib import Path

import pytest
from fastapi import Header
from keygrouping_observer.advice import Advice
from keygrouping_observer.cli import main
from keygrouping_observer.settings import ObserverSettings
from keygrouping_service.app import create_app, serving
from keygrouping_service.settings import EXIT_SETTINGS
from keygrouping_service.testing import until

JOB = '{"aggregates": [{"name": "n", "op": "count"}]}'


async def test_the_router_is_asked_for_the_workers_and_nonsense_changes_nothing(tmp_path: Path) -> None:
    answers: list[object] = [{"workers": 5}, {"workers": "many"}, {}, [], {"workers": 0}, {"workers": 7}]
    given: list[str] = []
    app = create_app("router", lambda: True)

    @app.get("/workers")
    async def workers(authorization: str = Header()) -> object:
        given.append(authorization)
        return answers[len(given) - 1] if len(given) <= len(answers) else answers[-1]

    token = tmp_path / "token"
    token.write_text("secret\n")
    async with serving(app, "127.0.0.1", 0) as port:
        settings = ObserverSettings(
            bootstrap_servers="-",
            job=JOB,
            look_interval=0.05,
            router_url=f"http://127.0.0.1:{port}",
            router_token_file=token,
        )
        advice = Advice(settings, workers=3)
        told = {advice.workers}
        asking = asyncio.create_task(advice.keep_asking())

        def has_asked() -> bool:
            told.add(advice.workers)
            return len(given) > len(answers)

        await until(has_asked)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    assert told <= {3, 5, 7}
    assert advice.workers == 7
    assert set(given) == {"Bearer secret"}


async def test_a_router_that_is_away_or_unknown_leaves_what_was_known() -> None:
    for url in (None, "http://127.0.0.1:9"):
        advice = Advice(ObserverSettings(bootstrap_servers="-", job=JOB, router_url=url), workers=3)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(advice.keep_asking(), 0.2)
        assert advice.workers == 3


def test_missing_settings_stop_the_start_with_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KEYGROUPING_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("KEYGROUPING_JOB", raising=False)
    monkeypatch.setenv("KEYGROUPING_OBSERVER_ROUTER_URL", "router:8000")
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == EXIT_SETTINGS
    names = {line.split(":")[0] for line in capsys.readouterr().err.splitlines()}
    assert names == {"KEYGROUPING_BOOTSTRAP_SERVERS", "KEYGROUPING_JOB", "KEYGROUPING_OBSERVER_ROUTER_URL"}
