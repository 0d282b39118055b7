"""Where the time of a final result goes: what each window waits for, and what Spark does in its micro-batches."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from keygrouping_local.deployment import Deployment
from keygrouping_service.kafka.progress import END, stage_watermark
from prometheus_client.parser import text_string_to_metric_families

MARKS = {
    "routed": "routers have committed that it is over",
    "last partial": "the last partial is in Kafka",
    "worker": "workers have committed that it is over",
    "published": "Spark's aggregator has published it as the watermark of the next batch",
    "first result": "",
    "last result": "",
}
"""What each window passes, in this order."""
_LOOK_SECONDS = 0.1
_KINDS = {
    "keygrouping_spark_batch_seconds": "batch",
    "keygrouping_spark_phase_seconds": "phase",
    "keygrouping_spark_step_seconds": "step",
}

Spent = Mapping[tuple[str, str, str], tuple[float, float]]
"""How many there were and their seconds: by query, kind (batch, phase or step) and name, which a batch has none of."""


@dataclass
class Windows:
    """When (ms of the clock) each window that ends after `since` passed the marks, by its end."""

    since: float
    passed: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))

    def see(self, mark: str, end: int) -> None:
        """The mark of one window; of several times the last one counts."""
        if end > self.since:
            self.passed[end][mark] = time.time() * 1000

    def reach(self, mark: str, watermark: int) -> None:
        """The mark of all windows that end by then; the first time counts."""
        now = time.time() * 1000
        for end, marks in self.passed.items():
            if end <= watermark < END:
                marks.setdefault(mark, now)

    async def follow(self, deployment: Deployment) -> None:
        """Looks at what routers and workers commit, until it is cancelled."""
        stages = {"routed": "router", "worker": "worker"}
        while True:
            for mark, stage in stages.items():
                entries = await deployment.committed(stage)
                self.reach(mark, stage_watermark({partition: entry.progress for partition, entry in entries.items()}))
            await asyncio.sleep(_LOOK_SECONDS)

    def lines(self) -> list[str]:
        """For each mark how long after its end a window passed it, on average and at most, of those with results."""
        whole = {end: marks for end, marks in self.passed.items() if "last result" in marks}
        found = []
        for mark, meaning in MARKS.items():
            late = [marks[mark] - end for end, marks in whole.items() if mark in marks]
            if late:
                told = f"{sum(late) / len(late):>7,.0f} / {max(late):>6,.0f} ms after the window's end: {mark}"
                found.append(told + (f", {meaning}" if meaning else ""))
        return [f"{len(whole)} windows, mean / most", *found]


async def spent_by(url: str) -> Spent:
    """What a driver's micro-batches have taken so far."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"{url}/metrics")).text
    found: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name in _KINDS else ():
            series = sample.name.removeprefix(f"{family.name}_")
            if series in ("count", "sum"):
                kind = _KINDS[family.name]
                found[sample.labels["query"], kind, sample.labels.get(kind, "")][series] = sample.value
    return {part: (values["count"], values["sum"]) for part, values in found.items()}


def batch_lines(before: Spent, after: Spent) -> list[str]:
    """What a micro-batch of each query took on average meanwhile, and its phases and steps, the longest first."""
    found = []
    for query in sorted({query for query, _, _ in after}):
        batches = _since(before, after, (query, "batch", ""))[0]
        if not batches:
            continue
        parts = [part for part in after if part[0] == query]
        ms = {part: _since(before, after, part)[1] / batches * 1000 for part in parts}
        phases, steps = (
            ", ".join(
                f"{part[2]} {ms[part]:,.0f}"
                for part in sorted(parts, key=ms.__getitem__, reverse=True)
                if part[1] == kind
            )
            for kind in ("phase", "step")
        )
        found += [
            f"{query}: {batches:.0f} batches of {ms[query, 'batch', '']:,.0f} ms: {phases}",
            f"  addBatch of it: {steps}",
        ]
    return found


def _since(before: Spent, after: Spent, part: tuple[str, str, str]) -> tuple[float, float]:
    (count, seconds), (count_before, seconds_before) = after[part], before.get(part, (0.0, 0.0))
    return count - count_before, seconds - seconds_before


def watermark_of(value: bytes) -> int:
    """What a record of the progress topic says."""
    return int(json.loads(value)["watermark"])
