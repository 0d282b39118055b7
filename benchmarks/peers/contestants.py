"""Who takes part: a system in one mode at one work, and the command that starts it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peers.installation import Installation

SYSTEMS = Path(__file__).with_name("systems")
FILES = {
    "keygrouping": "ours.py",
    "aiokafka": "aiokafka_relay.py",
    "confluent-kafka": "confluent_loop.py",
    "kafka-streams": "Streams.java",
    "quixstreams": "quix.py",
    "bytewax": "bytewax_flow.py",
    "spark": "spark.py",
    "faust": "faust_app.py",
}


@dataclass(frozen=True)
class Contestant:
    """A system in one mode at one work: `route` or `count`.

    `records` bounds the input of those that would take minutes for all of it.
    """

    system: str
    work: str
    mode: str
    threads: int = 1
    exactly_once: bool = False
    records: int | None = None

    @property
    def name(self) -> str:
        """Distinct from all others, such as `route:kafka-streams:eos:2`."""
        return f"{self.work}:{self.system}:{self.mode}:{self.threads}"

    def lines(self) -> int:
        """Lines of code that a user writes for this work, without blank ones, comments and the benchmark's own."""
        count, inside = 0, False
        for line in map(str.strip, (SYSTEMS / FILES[self.system]).read_text().splitlines()):
            if line.startswith(("# >", "// >")):
                inside = inside or self.work in line
            elif line.startswith(("# <", "// <")):
                inside = inside and self.work not in line
            elif inside and line and not line.startswith(("#", "//")):
                count += 1
        return count


CONTESTANTS = (
    Contestant("keygrouping", "route", "level-fill", exactly_once=True),
    Contestant("keygrouping", "route", "pkg", exactly_once=True),
    Contestant("aiokafka", "route", "eos", exactly_once=True),
    Contestant("confluent-kafka", "route", "eos", exactly_once=True),
    Contestant("confluent-kafka", "route", "at-least-once"),
    Contestant("kafka-streams", "route", "eos", exactly_once=True),
    Contestant("kafka-streams", "route", "eos", 2, exactly_once=True),
    Contestant("kafka-streams", "route", "at-least-once", 2),
    Contestant("quixstreams", "route", "eos", exactly_once=True),
    Contestant("quixstreams", "route", "at-least-once"),
    Contestant("bytewax", "route", "at-least-once", 2),
    Contestant("spark", "route", "at-least-once", 2),
    Contestant("faust", "route", "at-least-once", records=50_000),
    Contestant("keygrouping", "count", "native-level-fill", exactly_once=True),
    Contestant("keygrouping", "count", "native-combine", exactly_once=True),
    Contestant("keygrouping", "count", "spark-level-fill", exactly_once=True),
    Contestant("kafka-streams", "count", "eos", 2, exactly_once=True),
    Contestant("kafka-streams", "count", "at-least-once", 2),
    Contestant("quixstreams", "count", "eos", exactly_once=True, records=250_000),
    Contestant("bytewax", "count", "at-least-once", records=1_000_000),
    Contestant("spark", "count", "at-least-once", 2),
)


def command(contestant: Contestant, installation: Installation, folder: Path) -> Sequence[str | Path]:
    """What starts a contestant that keeps its state in the folder."""
    python = installation.python(contestant.system)
    script = SYSTEMS / FILES[contestant.system]
    match contestant.system:
        case "keygrouping":
            return (sys.executable, script)
        case "kafka-streams":
            return (*installation.java, "Streams")
        case "faust":
            return (python, script, "worker", "-l", "info", "--without-web")
        case "bytewax":
            recovery = folder / "recovery"
            prepare = f"{python} -m bytewax.recovery {recovery} 2"
            workers = f"-p {contestant.threads} -r {recovery} -s 10 -b 0"
            return (
                "sh",
                "-c",
                f"mkdir -p {recovery} && {prepare} && cd {SYSTEMS} && "
                f"exec {python} -m bytewax.testing {workers} bytewax_flow:flow",
            )
        case _:
            return (python, script)
