"""The recipe for KEDA: what it asks of a real Prometheus, and how many consumers follow from that.

KEDA's Prometheus trigger is a GET of /api/v1/query that must give one element, or none where nulls are ignored: then it
is 0. Its formulas are those of expr-lang, with the triggers' names as variables; the target of 1 makes their value the
number of replicas.
"""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from keygrouping.inspection import Ceiling
from keygrouping_local.monitoring import Prometheus
from keygrouping_service import inspect_metrics
from keygrouping_service.inspect_exporter import show
from keygrouping_service.observability.metrics import exposition
from keygrouping_service.testing import until

from .conftest import Serve

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "scaling.md"
HOT = Ceiling(1e6, [50.0, *[0.5] * 99], [], [])
"""17 of 100 consumers are of use."""
NOTHING = Ceiling(0, [0.0] * 100, [], [])
LAG = 1_000_000


@pytest.fixture
def recipe() -> dict[str, Any]:
    """The ScaledObject of the page."""
    (block,) = re.findall(r"```yaml\n(apiVersion: keda.sh.*?)```", PAGE.read_text(), re.DOTALL)
    return dict(yaml.safe_load(block)["spec"])


def replicas(recipe: dict[str, Any], **values: float) -> int:
    """What the formula and the target make of the triggers' values."""
    modifiers = recipe["advanced"]["scalingModifiers"]
    assert {trigger["name"] for trigger in recipe["triggers"]} == set(values)
    condition, then, otherwise = re.fullmatch(r"(.+) \? (.+) : (.+)", modifiers["formula"]).groups()  # type: ignore[union-attr]
    value: float = eval(f"({then}) if ({condition}) else ({otherwise})", {"min": min}, dict(values))
    return math.ceil(value / float(modifiers["target"]))


def asked(recipe: dict[str, Any], address: str) -> float:
    """What the Prometheus trigger gets, by the request that KEDA sends."""
    (trigger,) = (each for each in recipe["triggers"] if each["type"] == "prometheus")
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    question = {"query": trigger["metadata"]["query"], "time": now}
    answer = httpx.get(f"http://{address}/api/v1/query", params=question, timeout=60).raise_for_status()
    result = answer.json()["data"]["result"]
    assert len(result) <= 1
    if not result:
        assert trigger["metadata"]["ignoreNullValues"] == "true"
        return 0.0
    return float(result[0]["value"][1])


@pytest.mark.usefixtures("prometheus")
async def test_useless_consumers_are_refused(recipe: dict[str, Any], serve: Serve, tmp_path: Path) -> None:
    found = [HOT]

    def page(_: bytes) -> str:
        show(found[0], "orders", key_labels=False)
        show_another()
        return exposition().decode()

    targets = [(serve(page), {"namespace": "streams"}), (serve(page), {"namespace": "streams"})]
    with Prometheus(tmp_path / "prometheus", targets) as prometheus:
        await until(lambda: asked(recipe, prometheus.address) == 17)
        assert replicas(recipe, useful=17, lag=LAG) == 17
        assert replicas(recipe, useful=17, lag=25_000) == 3
        found[0] = NOTHING
        await until(lambda: asked(recipe, prometheus.address) == 0)
    assert replicas(recipe, useful=0, lag=LAG) == 100


def show_another() -> None:
    """A second topic's exporter, which must not be taken for the first."""
    inspect_metrics.USEFUL.labels("clicks").set(99)


def test_the_lag_of_one_consumer_is_the_same_in_trigger_and_formula(recipe: dict[str, Any]) -> None:
    (kafka,) = (each for each in recipe["triggers"] if each["type"] == "kafka")
    threshold = int(kafka["metadata"]["lagThreshold"])
    assert replicas(recipe, useful=0, lag=3 * threshold) == 3
    assert [each["name"] for each in recipe["triggers"]] == ["lag", "useful"]
