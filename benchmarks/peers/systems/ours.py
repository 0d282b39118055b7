"""keygrouping, started with the processes of a real application: one router, or router and all stages.

MODE is the grouping for `route`, and RUNNER-GROUPING for `count`; native-combine has no router.
"""

import asyncio
import json
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from common import APPLICATION, BROKERS, FOLDER, MODE, SOURCE, TARGET, WORK, first
from keygrouping_local.deployment import Deployment, Shape
from keygrouping_spark.settings import SparkSettings

WORKERS = 10
JAVA = {"spark-0": {"java_options": SparkSettings.model_fields["java_options"].default}}
"""The job's own; a deployment of tests has options with which Spark starts soon and computes slowly."""
STAGES = {"none": [], "native": ["worker-0", "worker-1", "aggregator-0"], "spark": ["spark-0"]}
# >count
JOB = {
    "window": "10s",
    "lateness": "0s",
    "aggregates": [{"name": "a", "op": "sum", "field": "a"}, {"name": "b", "op": "sum", "field": "b"}],
}
# <count
runner, _, grouping = ("none", "", MODE) if WORK == "route" else MODE.partition("-")


def address(deployment: Deployment, name: str) -> str | None:
    found = re.search(r"listening on (http://[^\s\"]+)", deployment.log(name).read_text())
    return found and found[1]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(3000):
        if await condition():
            return
        await asyncio.sleep(0.02)
    raise RuntimeError("not ready within a minute")


async def is_listening(deployment: Deployment, name: str) -> bool:
    return address(deployment, name) is not None


async def is_ready(deployment: Deployment, name: str) -> bool:
    url = address(deployment, name)
    async with httpx.AsyncClient() as client:
        return url is not None and (await client.get(f"{url}/readyz")).is_success


async def route(deployment: Deployment) -> None:
    """Starts the stages, and then the router, which has begun to read when this returns."""
    for name in STAGES[runner]:
        deployment.start(name, **JAVA.get(name, {}))
    for name in STAGES[runner]:
        await until(lambda: is_ready(deployment, name))  # noqa: B023 -- awaited at once
    deployment.start("router-0", workers=WORKERS, grouping=grouping, idle_timeout=3600)
    await until(lambda: is_listening(deployment, "router-0"))


async def combine(deployment: Deployment) -> None:
    """Likewise, without a router: the first worker has begun to read when this returns."""
    deployment.start("aggregator-0", stages="combine")
    await until(lambda: is_ready(deployment, "aggregator-0"))
    for name in ("worker-0", "worker-1"):
        deployment.start(name, stages="combine", idle_timeout=3600)
    await until(lambda: is_listening(deployment, "worker-0"))


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    names = {"events_topic": SOURCE, ("routed_topic" if WORK == "route" else "results_topic"): TARGET}
    deployment = Deployment(BROKERS, APPLICATION, Path(FOLDER), json.dumps(JOB), shape=Shape(10, WORKERS))
    deployment.settings = deployment.settings.model_copy(update=names)
    async with deployment:
        await (combine(deployment) if grouping == "combine" else route(deployment))
        first()
        if WORK == "count":
            await deployment.finish()
        await stop.wait()


asyncio.run(main())
