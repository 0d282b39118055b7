"""The probe says whether events come through a running pipeline, each once."""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from contextlib import nullcontext
from typing import Any
from urllib.error import URLError

import pytest
from keygrouping.job import JobSpec
from keygrouping_local.deployment import Deploy, Deployment
from keygrouping_local.ports import free_ports
from keygrouping_local.topics import environment_of
from keygrouping_producer import probe as module
from keygrouping_producer.probe import event
from keygrouping_service.errors import Fatal

JOB = '{"window": "1s", "lateness": 0, "aggregates": [{"name": "n", "op": "count"}]}'
JOBS = [
    JOB,
    '{"key": {"header": "who"}, "aggregates": [{"name": "m", "op": "mean", "field": "/a/b"}]}',
    '{"key": {"field": "/k/id"}, "weight": {"field": "w"}, "time": {"field": "t", "unit": "iso"}, '
    '"aggregates": [{"name": "d", "op": "distinct", "field": "x"}]}',
    '{"weight": "size", "time": {"field": "/t/s", "unit": "s"}, "aggregates": []}',
]


@pytest.mark.parametrize("text", JOBS)
def test_its_events_can_be_used_by_any_job(text: str) -> None:
    job, now = JobSpec.from_json(text), 1_700_000_000_000
    made = event(job, "me", now)
    headers = [(name, value.encode()) for name, value in made["headers"].items()]
    used = job.extract(made["key"].encode(), json.dumps(made["value"]).encode(), headers, made["timestamp"], now)
    assert (used.key, used.time_ms) == (b"me", now)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fault", "asked"),
    [(URLError(socket.gaierror(-3, "no name")), 2), (ConnectionRefusedError(), 2), (TimeoutError("timed out"), 1)],
)
async def test_who_is_not_reached_is_asked_again_unless_events_may_have_come(
    monkeypatch: pytest.MonkeyPatch, fault: OSError, asked: int
) -> None:
    calls = []

    def answer(request: Any, timeout: float) -> Any:
        calls.append((request, timeout))
        if len(calls) == 1:
            raise fault
        return nullcontext()

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    with nullcontext() if asked == 2 else pytest.raises(Fatal, match="does not answer: timed out"):
        await module._answered(urllib.request.Request("http://a"), "http://a")
    assert len(calls) == asked


def probe(deployment: Deployment, producer: int, **own: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        **environment_of(deployment.settings),
        "KEYGROUPING_JOB": JOB,
        "KEYGROUPING_PROBE_PRODUCER_URL": f"http://127.0.0.1:{producer}",
        "KEYGROUPING_PROBE_EVENTS": "50",
        **own,
    }
    command = [sys.executable, "-m", "keygrouping_producer.probe"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.kafka
@pytest.mark.parametrize("stages", ["route", "combine"])
async def test_it_sees_a_pipeline_that_works_and_one_that_does_not(deploy: Deploy, stages: str) -> None:
    deployment = await deploy(JOB)
    producer, router = free_ports(2)
    routed = stages == "route"
    own = {"KEYGROUPING_PROBE_ROUTER_URL": f"http://127.0.0.1:{router}"} if routed else {}
    if routed:
        deployment.start("router-0", http_port=router, idle_timeout=1)
    deployment.start("producer-0", http_port=producer)
    deployment.start("worker-0", stages=stages, **({} if routed else {"idle_timeout": 1}))
    deployment.start("aggregator-0", stages=stages)

    async def works() -> bool:
        return probe(deployment, producer, **own, KEYGROUPING_PROBE_TIMEOUT="40").returncode == 0

    await deployment.until(works)
    deployment.stop("worker-0")
    found = probe(deployment, producer, **own, KEYGROUPING_PROBE_TIMEOUT="1")
    assert found.returncode == 1
    assert "worker stage: 0 of 50 events after 1 s" in found.stderr
