"""`GET /distribution`: what it gives is what its document says, and closed reads need a token."""

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from keygrouping.partial import Partial
from keygrouping_observer.api import observer_app
from keygrouping_observer.audit.report import LatestAudit
from keygrouping_observer.snapshots import RecentSnapshots

from .test_observation import SETTINGS, record, run


def snapshots() -> list[dict[str, Any]]:
    """Snapshots of two intervals as they stand in the topic."""
    values = [Partial(worker, 0, 1000, 3, 4, 0, 2, 5, {}).encode() for worker in (0, 2)]
    log = [record(0, n, 100 + 1000 * n, b"k", value) for n, value in enumerate(values)]
    return [
        orjson.loads(orjson.dumps(found, option=orjson.OPT_NON_STR_KEYS)) for found in run([log, [], []], []).snapshots
    ]


def recent(shown: list[dict[str, Any]]) -> RecentSnapshots:
    made = RecentSnapshots("app-observer")
    made.restore(shown)
    made.show_lags([3, 0, 1])
    return made


def client(made: RecentSnapshots, **settings: Any) -> httpx.AsyncClient:
    app = observer_app(SETTINGS.model_copy(update=settings), made, LatestAudit(), lambda: True)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://observer")


async def test_what_is_answered_is_what_was_written_and_of_the_shape_in_the_document() -> None:
    written = snapshots()
    run_of_last = written[-1]["run"]
    async with client(recent(written)) as observer:
        shown = (await observer.get("/distribution")).json()
        document = (await observer.get("/openapi.json")).json()
        assert (await observer.get("/distribution", params={"limit": 61})).status_code == 422
    assert shown["run"] == run_of_last
    assert shown["intervals"] == [{n: v for n, v in found.items() if n != "run"} for found in reversed(written)]
    assert (shown["state"], shown["lags"]) == ("standby", [3, 0, 1])
    schemas, operation = document["components"]["schemas"], document["paths"]["/distribution"]["get"]
    answers = operation["responses"]
    assert answers["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/DistributionReport")
    assert answers.keys() == {"200", "422", "429"}
    assert answers["422"]["content"].keys() == {"application/problem+json"} and "Problem" in schemas
    assert schemas["IntervalFigures"]["properties"].keys() == written[0].keys() - {"run"}
    assert schemas["RunFigures"]["properties"].keys() == run_of_last.keys()


@pytest.mark.parametrize(
    "path", ["/distribution", "/audit", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"]
)
async def test_a_query_that_means_nothing_is_refused(path: str) -> None:
    async with client(recent(snapshots())) as observer:
        answer = await observer.get(f"{path}?limits=3")
    assert answer.status_code == 422 and "limits means nothing here" in answer.json()["detail"]


async def test_before_the_first_interval_there_is_no_run() -> None:
    async with client(recent([])) as observer:
        shown = (await observer.get("/distribution")).json()
    assert (shown["intervals"], shown["run"]) == ([], None)


async def test_closed_reads_need_a_token_but_health_and_metrics_do_not(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("viewer read secret")
    async with client(recent(snapshots()), api_token_file=file, api_reads="closed") as observer:
        refused = await observer.get("/distribution")
        assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
        given = await observer.get("/distribution", headers={"Authorization": "Bearer secret"})
        assert given.status_code == 200
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await observer.get(path)).status_code == 200
        document = (await observer.get("/openapi.json")).json()
    assert "401" in document["paths"]["/distribution"]["get"]["responses"]
    async with client(recent([]), api_token_file=file) as observer:
        assert (await observer.get("/distribution")).status_code == 200
