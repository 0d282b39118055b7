"""Laws of orders over HTTP: what is taken can be planned with, by a new router, too; all else is 4xx."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from keygrouping.grouping import describe, names
from keygrouping.grouping.level_fill import LevelFill
from keygrouping_router.api import router_app
from keygrouping_service.errors import Fatal
from keygrouping_service.store.memory import MemoryStore

from ..planes import FakeTime, end_interval, new_plane, route, settings_of, skewed

MOST = 12


class Site:
    """A router with an API, and its store."""

    def __init__(self, grouping: str = "level-fill", **given: Any) -> None:
        self.store, self.time = MemoryStore(), FakeTime()
        self.plane = new_plane(self.store, self.time, MOST, grouping=grouping, workers=4, **given)

    async def start(self) -> None:
        await self.plane.replica.start()

    async def send(self, method: str, path: str, content: bytes | str) -> httpx.Response:
        transport = httpx.ASGITransport(router_app(self.plane, settings_of(api_rate=0)), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            json_type = {"content-type": "application/json"}
            return await client.request(method, path, content=content, headers=json_type)

    async def stored(self) -> Any:
        entry = await self.store.get("control")
        return None if entry is None else entry.value

    async def check(self, method: str, path: str, content: bytes | str) -> int:
        """One order, and the law."""
        before = await self.stored()
        answer = await self.send(method, path, content)
        assert answer.status_code in (200, 400, 422), (path, content, answer.text)
        if answer.status_code != 200:
            assert await self.stored() == before, "and nothing is stored"
            assert "\n" not in answer.json()["detail"]
            return answer.status_code
        fresh = new_plane(self.store, self.time, MOST, grouping="level-fill", workers=4, replica="fresh")
        await fresh.replica.start()
        for plane in (self.plane, fresh):
            for seed in range(2):
                routed = route(plane, skewed(500, 0.4, seed), self.time.passed).workers
                assert routed.min() >= 0 and routed.max() < plane.replica.active.control.workers
                self.time.passed += 10
                await end_interval([plane], self.time)
            await plane.workers()
        return answer.status_code


HUGE = [1e-308, 1e308]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/thresholds", {"capacities": HUGE}),
        ("PUT", "/thresholds", {"capacities": HUGE}),
        ("PATCH", "/thresholds", {"capacities": {"0": 1e-308, "1": 1e308}}),
        ("PATCH", "/thresholds", {"capacities": [5e-324]}),
        ("PATCH", "/thresholds", {"capacities": [0.0]}),
        ("PATCH", "/thresholds", {"capacities": [-1]}),
        ("PATCH", "/thresholds", {"capacities": [1e4]}),
        ("PUT", "/workers", {"workers": 4, "capacities": {"0": 1e-308, "1": 1e6}}),
        ("PUT", "/workers", {"workers": 4, "capacities": {"0": 1e4}}),
        ("PUT", "/grouping", {"name": "level-fill", "settings": {"capacities": HUGE}}),
        ("PUT", "/grouping", {"name": "dkg", "settings": {"teenage_interval": 5e-324}, "sharing": "independent"}),
        ("PUT", "/shadow", {"groupings": [{"name": "consistent", "settings": {"capacities": HUGE}}]}),
        ("PUT", "/shadow", {"groupings": [{"name": "dkg", "settings": {"teenage_interval": 5e-324}}]}),
    ],
)
async def test_what_cannot_be_planned_with_is_refused_before_it_is_stored(method: str, path: str, body: Any) -> None:
    site = Site()
    await site.start()
    assert await site.check(method, path, json.dumps(body)) == 422


async def test_capacities_as_far_apart_as_they_may_be_are_planned_with() -> None:
    site = Site()
    await site.start()
    for capacities in ([0.001, 1000], [1000] + [0.001] * 11, [0.001] * 12):
        assert await site.check("PATCH", "/thresholds", json.dumps({"capacities": capacities})) == 200
    body = {"workers": 12, "capacities": {"0": 0.001, "11": 1000}}
    assert await site.check("PUT", "/workers", json.dumps(body)) == 200


async def test_whatever_a_grouping_fails_with_is_a_422_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    await site.start()

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("no room")

    monkeypatch.setattr(LevelFill, "plan", broken)
    answer = await site.send("PATCH", "/thresholds", '{"eps": 0.1}')
    assert answer.status_code == 422
    assert answer.json()["detail"] == "level-fill can't route and plan with these settings: ZeroDivisionError: no room"
    assert (await site.stored())["settings"] == {}
    await site.plane.replica.follow()


async def test_an_environment_that_cannot_be_planned_with_stops_the_start_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("no room")

    monkeypatch.setattr(LevelFill, "plan", broken)
    site = Site(sharing="shared")
    with pytest.raises(Fatal, match=r"KEYGROUPING_ROUTER_GROUPING_SETTINGS: level-fill can't route and plan .*no room"):
        await site.start()
    assert await site.stored() is None


extreme = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2, 5e-324, 1e-308, 1e-9, 0.001, 0.5, 1000, 1e6, 1e308, 2**31, 2**53, 2**63, 2**70]),
    st.integers(-10, 10_000),
    st.floats(),
    st.sampled_from(["", "all", "hot-only", "x", "\ud800", "7"]),
)
values = (
    extreme | st.lists(extreme, max_size=4) | st.dictionaries(st.sampled_from(["0", "1", "a"]), extreme, max_size=2)
)


@st.composite
def settings_for(draw: st.DrawFn, grouping: str) -> dict[str, Any]:
    known = [entry.name for entry in describe(grouping)]
    return draw(st.dictionaries(st.sampled_from([*known, "capacities", "unknown"]), values, min_size=1, max_size=3))


@st.composite
def orders(draw: st.DrawFn) -> tuple[str, str, str]:
    grouping = draw(st.sampled_from(names()))
    settings = draw(settings_for(grouping))
    capacities = draw(st.dictionaries(st.sampled_from(["0", "1", "11", "12", "-1"]), values, max_size=3))
    body: Any
    method, path, body = draw(
        st.sampled_from(
            [
                ("PATCH", "/thresholds", draw(settings_for("level-fill"))),
                ("PUT", "/thresholds", draw(settings_for("level-fill"))),
                ("PUT", "/workers", {"workers": draw(extreme | st.integers(1, 12)), "capacities": capacities}),
                ("PUT", "/grouping", {"name": grouping, "settings": settings, "sharing": "shared"}),
                ("PUT", "/grouping", {"name": grouping, "settings": settings, "sharing": "independent"}),
                ("PUT", "/shadow", {"groupings": [{"name": grouping, "settings": settings}], "sample": draw(extreme)}),
                ("PUT", "/shadow", {"groupings": [{"name": grouping, "settings": settings}]}),
            ]
        )
    )
    return method, path, json.dumps(body)


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(orders())
async def test_any_order_is_carried_out_or_refused(order: tuple[str, str, str]) -> None:
    site = Site()
    await site.start()
    await site.check(*order)
