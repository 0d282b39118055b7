import asyncio
import contextlib
from pathlib import Path

from fastapi import Header
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.http.workers_in_use import WorkersInUse
from keygrouping_service.testing import until


def told_of(workers: int, capacity: float = 2.0) -> dict[str, object]:
    return {"workers": workers, "items": [{"worker": worker, "capacity": capacity} for worker in range(9)]}


async def test_the_router_is_asked_for_the_workers_and_nonsense_changes_nothing(tmp_path: Path) -> None:
    answers: list[object] = [
        told_of(5),
        {"workers": "many"},
        {},
        [],
        told_of(0),
        told_of(6, capacity=0.0),
        {"workers": 6, "items": []},
        told_of(7),
    ]
    given: list[str] = []
    app = create_app("router", lambda: True)

    @app.get("/workers")
    async def workers(authorization: str = Header()) -> object:
        given.append(authorization)
        return answers[len(given) - 1] if len(given) <= len(answers) else answers[-1]

    token = tmp_path / "token"
    token.write_text("secret\n")
    async with serving(app, "127.0.0.1", 0) as port:
        in_use = WorkersInUse(f"http://127.0.0.1:{port}", token, pause=0.05, workers=3)
        told = {in_use.workers}
        asking = asyncio.create_task(in_use.keep_asking())

        def has_asked() -> bool:
            told.add(in_use.workers)
            return len(given) > len(answers)

        await until(has_asked)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    assert told <= {3, 5, 7}
    assert (in_use.workers, in_use.capacities) == (7, (2.0,) * 7)
    assert set(given) == {"Bearer secret"}


async def test_a_router_that_is_away_or_unknown_leaves_what_was_known() -> None:
    for url in (None, "http://127.0.0.1:9"):
        in_use = WorkersInUse(url, None, pause=0.05, workers=3)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(in_use.keep_asking(), 0.2)
        assert (in_use.workers, in_use.capacities) == (3, ())
