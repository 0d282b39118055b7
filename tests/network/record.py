"""The record of all schedules that were ever run here, one JSON line each, so that several runs add up."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .trial import Outcome


class Record:
    """A file of JSON lines; it only grows."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._revision = _revision()
        file.parent.mkdir(parents=True, exist_ok=True)

    def add(self, outcome: Outcome) -> None:
        """Appends a schedule's outcome, with the revision of the code and the time."""
        line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "revision": self._revision, **outcome.data()}
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def next_seed(self, runner: str) -> int:
        """The seed after the greatest one that a runner has had."""
        return max((line["seed"] for line in self._lines() if line["runner"] == runner), default=0) + 1

    def summary(self) -> str:
        """What all runs together have shown, by revision and runner."""
        lines = self._lines()
        schedules, found, faults = Counter[str](), Counter[str](), Counter[str]()
        for line in lines:
            name = f"{line['revision']} {line['runner']}"
            schedules[name] += 1
            found[name] += bool(line["findings"])
            faults.update(fault["kind"] for fault in line["faults"])
        told = [f"{name}: {count} schedules, {found[name]} with findings" for name, count in schedules.items()]
        kinds = ", ".join(f"{kind} {count}" for kind, count in faults.most_common())
        return "\n".join([f"{self.file}:", *(f"  {line}" for line in told), f"  faults: {kinds}"])

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.open()] if self.file.exists() else []


def _revision() -> str:
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return git.stdout.strip() or "unknown"
