"""What became of the input of a run: each line that was read is used, or left out for a reason that is told."""

from collections import Counter
from dataclasses import dataclass, field

from keygrouping_producer.ledger import read_places
from keygrouping_producer.settings import ProducerSettings
from keygrouping_service.settings import ServiceSettings

from keygrouping_local.comparison import Comparison, Skipped
from keygrouping_local.records import Letter, read_letters

_STAGES = ("producer", "router", "worker", "aggregator")
_ADVICE = {
    "invalid-time": "name the format of the times by --time-format, or another field by --time-field",
    "invalid-json": "a file has one JSON object a line, or is CSV and named .csv",
    "not-an-object": "a file has one JSON object a line, or is CSV and named .csv",
    "wrong-number-of-fields": "name what separates the fields by --delimiter",
    "invalid-csv": "name what separates the fields by --delimiter",
    "invalid-utf8": "write the file as UTF-8",
    "invalid-key": "name another field by --key",
    "no-key": "name another field by --key",
    "timestamp-in-the-future": "name the format of the times by --time-format, or another field by --time-field",
    "no-timestamp": "name the format of the times by --time-format, or another field by --time-field",
}


@dataclass(frozen=True)
class Refusal:
    """How many lines or records a stage has refused for a reason, and the first of them in words."""

    stage: str
    reason: str
    count: int
    example: str


@dataclass(frozen=True)
class Accounts:
    """The lines that the producer read and sent, as it recorded them, and what the topics hold of them."""

    read: int
    sent: int
    refused_by_producer: int
    """As the producer recorded it; `refusals` has what stands in `dead-letters`."""
    events: int
    late: int
    used: int
    refusals: list[Refusal] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    reader: str = "router"
    """The stage that reads the events: the worker where workers combine."""

    @property
    def faults(self) -> list[str]:
        """Where the sums do not add up: something was lost, or is there twice."""
        refused = {stage: self.refused_by(stage) for stage in _STAGES}
        sums = [
            ("lines read", self.read, "sent or refused", self.sent + self.refused_by_producer),
            ("lines refused", self.refused_by_producer, "in dead-letters", refused["producer"]),
            ("events sent", self.sent, "in the topic", self.events),
            ("events", self.events, "used, late or refused", self.used + self.late + refused[self.reader]),
        ]
        return [f"{name}: {this:,}, but {other}: {that:,}" for name, this, other, that in sums if this != that]

    @property
    def advice(self) -> str | None:
        """Why nothing was used and what to do; None if something was."""
        if self.used:
            return None
        if not self.read:
            return "nothing was used, as the input holds no events: is it the right file?"
        if not self.refusals:
            return "nothing was used: all events are late; allow a greater lateness in the job"
        most = max(self.refusals, key=lambda refusal: refusal.count)
        what = _ADVICE.get(most.reason, "see the example in the table")
        return f"nothing was used: {most.count:,} of {self.read:,} are refused for {most.reason}; {what}"

    def refused_by(self, stage: str) -> int:
        """How many lines or records the stage has refused."""
        return sum(refusal.count for refusal in self.refusals if refusal.stage == stage)


async def take_accounts(settings: ServiceSettings, comparison: Comparison, reader: str) -> Accounts:
    """The accounts of a finished run that a producer has fed, and of which the stage `reader` has read the events."""
    places = (await read_places(ProducerSettings(**settings.model_dump()))).places.values()
    known = [place for place in places if place is not None]
    return Accounts(
        read=max((place.position for place in known), default=0),
        sent=sum(place.counters.sent for place in known),
        refused_by_producer=sum(place.counters.bad for place in known),
        events=comparison.events,
        late=comparison.late,
        used=comparison.used,
        refusals=await _refusals(settings, reader),
        skipped=comparison.skipped,
        reader=reader,
    )


async def _refusals(settings: ServiceSettings, reader: str) -> list[Refusal]:
    stages = {
        None: "producer",
        settings.events_topic: reader,
        settings.routed_topic: "worker",
        settings.partials_topic: "aggregator",
    }
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    async for letter in read_letters(settings, settings.dead_letters_topic):
        group = (stages.get(letter.topic, "aggregator"), letter.reason)
        counts[group] += 1
        examples.setdefault(group, _example(letter))
    order = sorted(counts, key=lambda group: (_STAGES.index(group[0]), -counts[group]))
    return [Refusal(*group, counts[group], examples[group]) for group in order]


def _example(letter: Letter) -> str:
    where = "" if letter.topic is None else f"{letter.topic}-{letter.partition} at offset {letter.offset}: "
    return where + letter.detail


def add_lines(comparison: Comparison, accounts: Accounts) -> None:
    """Counts the lines that the producer has refused among the dead letters of the comparison."""
    found = accounts.refused_by("producer")
    for row in comparison.rows:
        if row.name == "dead-letters":
            row.expected += accounts.refused_by_producer
            row.found += found
            row.different += abs(found - accounts.refused_by_producer)
