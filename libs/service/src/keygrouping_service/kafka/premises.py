"""What exactness rests on outside of the services: settings of brokers and topics, judged when a service starts.

A finding is fatal where results would be wrong on this cluster although nothing fails, or where nothing could be
written at all; it is a warning where a further fault is needed. docs/premises.md has a line for each check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from keygrouping.job import JobSpec

from keygrouping_service.settings import JobSettings, ServiceSettings, StageSettings, name_in_use

Role = Literal["events", "routed", "partials", "results", "late", "dead_letters", "quarantine", "positions"]
"""What a topic is to the pipeline; its name is a setting."""

_LETTERS: tuple[Role, ...] = ("late", "dead_letters", "quarantine")
"""Topics of whole events that are in no result, for people to read."""

OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"

LEAST_OFFSETS_MINUTES = 30 * 24 * 60
"""Rests shorter than this never make a group forget where it stood."""

LEAST_METADATA_BYTES = 2048
"""What the stages commit with their offsets fits into this, whatever the clocks and `confirmations` are."""

_LEAST_ID_MS = 24 * 3600 * 1000
_OFFSET_FETCH, _INIT_PRODUCER_ID, _DESCRIBE_LOG_DIRS = 9, 22, 35
_STABLE_OFFSETS = 7
_SINCE_4_3 = 5
"""Of DescribeLogDirs: by no other request does 4.3 differ from 4.2. Its brokers, and those of 4.4, have KAFKA-20734."""
_WANTED_REPLICAS = 3
_DEFAULT_TRANSACTION_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """A premise that is not given: what is wrong, where, and what to do."""

    text: str
    fatal: bool = False


Findings: TypeAlias = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as the brokers describe it: the fewest replicas of a partition, and its settings in force.

    `settings` is None where they may not be read.
    """

    name: str
    replicas: int
    settings: Mapping[str, str] | None

    def get(self, name: str, default: str) -> str:
        """A setting in force; `default` where it is not known."""
        return (self.settings or {}).get(name, default)

    def number(self, name: str, default: int) -> int:
        """A setting in force as a number."""
        return int(self.get(name, str(default)))


@dataclass(frozen=True, slots=True)
class Facts:
    """What could be learned of the cluster. `brokers` holds the settings of those that told them."""

    nodes: int
    brokers: Mapping[int, Mapping[str, str]]
    topics: Mapping[Role, TopicFacts]
    internal: Mapping[str, TopicFacts] = field(default_factory=dict)
    requests: Mapping[int, int] = field(default_factory=dict)
    """Newest version of each request that the brokers know, by its number in the protocol."""
    hidden: tuple[str, ...] = ()
    """What could not be read, why, and what to do."""

    def least(self, name: str) -> int | None:
        """The smallest value of a setting over all brokers; None where no broker tells it."""
        return min((int(given[name]) for given in self.brokers.values() if name in given), default=None)

    @property
    def all_topics(self) -> list[TopicFacts]:
        """The pipeline's topics and the brokers' own."""
        return [*self.topics.values(), *self.internal.values()]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a service asks of the cluster: the topics that it reads and writes, and some of its settings."""

    reads: tuple[Role, ...]
    writes: tuple[Role, ...]
    names: Mapping[Role, str]
    transaction_timeout: float = _DEFAULT_TRANSACTION_TIMEOUT
    session_timeout: float | None = None
    batch_bytes: int = 0
    job: JobSpec | None = None
    service: type[ServiceSettings] = ServiceSettings

    def setting(self, field: str) -> str:
        """Name of a setting in the environment, the one that is given if any is."""
        return name_in_use(self.service, field)

    @property
    def roles(self) -> tuple[Role, ...]:
        """All topics, each once."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


class Case(NamedTuple):
    """What is judged: the cluster against the needs of a service."""

    facts: Facts
    needs: Needs


def needs_of(settings: ServiceSettings, reads: Iterable[Role], writes: Iterable[Role]) -> Needs:
    """The needs of a service with these settings; topics that they name none of are left out."""
    reading, writing = tuple(reads), tuple(writes)
    given = {role: getattr(settings, f"{role}_topic") for role in (*reading, *writing)}
    names = {role: name for role, name in given.items() if name is not None}
    return Needs(
        tuple(role for role in reading if role in names),
        tuple(role for role in writing if role in names),
        names,
        transaction_timeout=getattr(settings, "transaction_timeout", _DEFAULT_TRANSACTION_TIMEOUT),
        session_timeout=settings.session_timeout if isinstance(settings, StageSettings) else None,
        batch_bytes=getattr(settings, "batch_bytes", 0),
        job=settings.job if isinstance(settings, JobSettings) else None,
        service=type(settings),
    )


def judge(facts: Facts, needs: Needs) -> dict[str, list[Finding]]:
    """What each check has found; an empty list: the premise is given. A check that could not be done is missing."""
    told = {
        name: list(check(Case(facts, needs)))
        for name, check in CHECKS.items()
        if name not in _OF_BROKERS or facts.brokers
    }
    if any(topic.settings is None for topic in facts.all_topics):
        return {name: findings for name, findings in told.items() if findings or name not in _OF_TOPICS}
    return told


# the cluster


def _rights(case: Case) -> Findings:
    for what in case.facts.hidden:
        yield Finding(f"{what}; the checks that need it are left out")


def _broker_version(case: Case) -> Findings:
    if _INIT_PRODUCER_ID not in case.facts.requests:
        yield Finding("the brokers know no transactions: upgrade Kafka to 2.5 or newer", fatal=True)
    elif case.facts.requests.get(_OFFSET_FETCH, 0) < _STABLE_OFFSETS:
        yield Finding(
            "the brokers are older than Kafka 2.5 and can't tell offsets that a transaction is about to commit: upgrade"
        )
    elif case.facts.requests.get(_DESCRIBE_LOG_DIRS, 0) >= _SINCE_4_3 and _in_one_copy(case.facts):
        yield Finding(
            "the brokers may drop the end of a transaction while the only copy of a partition is away, and its events "
            "wait until somebody ends it by hand (KAFKA-20734, in Kafka 4.3 and 4.4): run 4.2, or three brokers and "
            "replicas"
        )


def _in_one_copy(facts: Facts) -> bool:
    return facts.nodes == 1 or any(topic.replicas == 1 for topic in facts.all_topics)


def _one_broker(case: Case) -> Findings:
    if case.facts.nodes == 1:
        yield Finding(
            "one broker holds the only copy of everything: fine to try things; use three for data that matters"
        )


def _offsets_retention(case: Case) -> Findings:
    least = case.facts.least("offsets.retention.minutes")
    if least is not None and least < LEAST_OFFSETS_MINUTES:
        copies = case.needs.names.get("positions")
        goes_on = f": it goes on at their copies in {copies}, but other tools see no position" if copies else ""
        yield Finding(
            f"the brokers forget the offsets of a resting pipeline after {_duration(least * 60)}{goes_on}: set "
            f"offsets.retention.minutes={LEAST_OFFSETS_MINUTES} or more, longer than any rest"
        )


def _transaction_timeout(case: Case) -> Findings:
    most = case.facts.least("transaction.max.timeout.ms")
    asked = case.needs.transaction_timeout
    if most is not None and asked * 1000 > most:
        yield Finding(
            f"{case.needs.setting('transaction_timeout')}={asked:g} is more than the brokers allow: set it to "
            f"{most // 1000} or less, or raise their transaction.max.timeout.ms={most}",
            fatal=True,
        )


def _transactional_ids(case: Case) -> Findings:
    least = case.facts.least("transactional.id.expiration.ms")
    if least is not None and least < _LEAST_ID_MS:
        yield Finding(
            f"the brokers forget transactional ids after {_duration(least // 1000)} without use, and a quiet partition "
            f"restarts at its next event: set transactional.id.expiration.ms={7 * _LEAST_ID_MS}"
        )


def _transaction_verification(case: Case) -> Findings:
    unverified = [
        node
        for node, given in case.facts.brokers.items()
        if given.get("transaction.partition.verification.enable", "false") != "true"
    ]
    if unverified:
        yield Finding(
            f"brokers {_names(unverified)} don't verify that a write belongs to an open transaction, so that a delayed "
            "one can block a partition for good: upgrade to Kafka 3.6 or newer and set "
            "transaction.partition.verification.enable=true"
        )


def _session_timeout(case: Case) -> Findings:
    if case.needs.session_timeout is None:
        return
    setting, asked = case.needs.setting("session_timeout"), case.needs.session_timeout * 1000
    least = max((int(given.get("group.min.session.timeout.ms", 0)) for given in case.facts.brokers.values()), default=0)
    most = case.facts.least("group.max.session.timeout.ms")
    if asked < least or (most is not None and asked > most):
        taken = f"{least / 1000:g} to {(most or asked) / 1000:g} seconds"
        yield Finding(
            f"{setting}={asked / 1000:g} is refused by the brokers, which take {taken} (group.min.session.timeout.ms, "
            "group.max.session.timeout.ms)",
            fatal=True,
        )


def _offset_metadata(case: Case) -> Findings:
    most = case.facts.least("offset.metadata.max.bytes")
    if most is not None and most < LEAST_METADATA_BYTES:
        yield Finding(
            f"progress does not fit beside the committed offsets: set offset.metadata.max.bytes={LEAST_METADATA_BYTES} "
            f"or more (it is {most})",
            fatal=True,
        )


# copies


def _replication(case: Case) -> Findings:
    wanted = min(_WANTED_REPLICAS, case.facts.nodes)
    few = [topic.name for topic in case.facts.all_topics if topic.replicas < wanted]
    if few:
        yield Finding(
            f"fewer than {wanted} replicas of {_names(few)} on {case.facts.nodes} brokers: what a disk loses is lost; "
            "add replicas by kafka-reassign-partitions.sh"
        )


def _min_isr(case: Case) -> Findings:
    written = [topic for role, topic in case.facts.topics.items() if role in case.needs.writes]
    for topic in (*written, *case.facts.internal.values()):
        least = topic.number("min.insync.replicas", 1)
        if least > topic.replicas:
            fix = _alter(topic, f"min.insync.replicas={max(1, topic.replicas - 1)}")
            yield Finding(
                f"no write to {topic.name} can succeed: replicas {topic.replicas}, min.insync.replicas={least}; {fix}",
                fatal=True,
            )
    weak = [t for t in case.facts.all_topics if t.replicas > 1 and t.number("min.insync.replicas", 2) < 2]
    if weak:
        yield Finding(
            f"min.insync.replicas=1 of {_names(t.name for t in weak)}: what was acknowledged may be on one disk alone; "
            f"{_alter(weak[0], 'min.insync.replicas=2')}"
        )


def _unclean_election(case: Case) -> Findings:
    unclean = [
        t for t in case.facts.all_topics if t.replicas > 1 and t.get("unclean.leader.election.enable", "") == "true"
    ]
    if unclean:
        yield Finding(
            f"unclean.leader.election.enable=true of {_names(t.name for t in unclean)}: a broker that lacks committed "
            f"records may become leader; {_alter(unclean[0], 'unclean.leader.election.enable=false')}"
        )


# topics


def _cleanup_policy(case: Case) -> Findings:
    for role, topic in case.facts.topics.items():
        policy = topic.get("cleanup.policy", "compact" if role == "positions" else "delete")
        if role == "positions":
            if "delete" in policy:
                yield Finding(
                    f"{topic.name} deletes copies of offsets, and a stage whose offsets the brokers forget would "
                    f"begin again: {_alter(topic, 'cleanup.policy=compact')}",
                    fatal=True,
                )
        elif role == "results" or "compact" not in policy:
            continue
        elif role == "events":
            yield Finding(
                f"{topic.name} is compacted: an event that a later one of its key replaces before it is read counts in "
                "no result"
            )
        else:
            yield Finding(
                f"{topic.name} is compacted: records would vanish unread; {_alter(topic, 'cleanup.policy=delete')}",
                fatal=True,
            )


def _retention(case: Case) -> Findings:
    for role, topic in case.facts.topics.items():
        if role not in ("events", "positions") and "delete" in topic.get("cleanup.policy", "delete"):
            yield from _retention_of(role, topic, case.needs)


def _retention_of(role: Role, topic: TopicFacts, needs: Needs) -> Findings:
    kept = topic.number("retention.ms", -1)
    forever = _alter(topic, "retention.ms=-1")
    if kept >= 0:
        after = _duration(kept // 1000)
        if role == "routed":
            yield Finding(
                f"{topic.name} deletes by the events' own times, {after} after them, read or unread, and so all of a "
                f"backlog: {forever}",
                fatal=True,
            )
        elif role == "partials":
            open_ms = needs.job.window_ms + needs.job.lateness_ms if needs.job else 0
            yield Finding(
                f"{topic.name} deletes partials after {after}, be their windows open or not: {forever}",
                fatal=kept <= open_ms,
            )
        else:
            yield Finding(f"{topic.name} deletes records after {after} by their own times: {forever}")
    if role in ("routed", "partials") and (most := topic.number("retention.bytes", -1)) >= 0:
        yield Finding(
            f"{topic.name} deletes what is more than {most} bytes of a partition, read or unread: "
            f"{_alter(topic, 'retention.bytes=-1')}; what has been read is purged anyway"
        )


def _timestamp_type(case: Case) -> Findings:
    for role in ("routed", *_LETTERS):
        topic = case.facts.topics.get(role)
        if topic is None or topic.get("message.timestamp.type", "CreateTime") == "CreateTime":
            continue
        by_timestamp = case.needs.job is not None and case.needs.job.time.kind == "timestamp"
        yield Finding(
            f"{topic.name} replaces the events' timestamps by the time of writing: "
            f"{_alter(topic, 'message.timestamp.type=CreateTime')}",
            fatal=role == "routed" and by_timestamp,
        )


def _timestamp_bounds(case: Case) -> Findings:
    ahead = case.needs.job.max_future_ms if case.needs.job else 0
    for role in ("routed", *_LETTERS):
        topic = case.facts.topics.get(role)
        if topic is None:
            continue
        unbounded = str(2**63 - 1)
        # Before Kafka 3.6 one bound served both ways.
        both = topic.number("message.timestamp.difference.max.ms", 2**63 - 1)
        before = min(both, topic.number("message.timestamp.before.max.ms", 2**63 - 1))
        after = min(both, topic.number("message.timestamp.after.max.ms", 2**63 - 1))
        if before < 2**63 - 1:
            fix = _alter(topic, f"message.timestamp.before.max.ms={unbounded}")
            text = f"{topic.name} refuses records older than {_duration(before // 1000)}: {fix}"
            yield Finding(text, fatal=role == "routed")
        if after < 2**63 - 1:
            fix = _alter(topic, f"message.timestamp.after.max.ms={unbounded}")
            text = f"{topic.name} refuses records more than {_duration(after // 1000)} ahead of the clock: {fix}"
            yield Finding(text, fatal=role == "routed" and after < ahead)


def _record_size(case: Case) -> Findings:
    for role in case.needs.writes:
        topic = case.facts.topics.get(role)
        if topic is not None and case.needs.batch_bytes > topic.number("max.message.bytes", case.needs.batch_bytes):
            most = topic.number("max.message.bytes", 0)
            yield Finding(
                f"{topic.name} takes {most} bytes at once, and {case.needs.setting('batch_bytes')} is "
                f"{case.needs.batch_bytes}: lower it, or {_alter(topic, f'max.message.bytes={case.needs.batch_bytes}')}"
            )
    events = case.facts.topics.get("events")
    if events is None:
        return
    largest = events.number("max.message.bytes", 0)
    for role in ("routed", *_LETTERS):
        topic = case.facts.topics.get(role)
        if topic is not None and topic.number("max.message.bytes", largest) < largest:
            yield Finding(
                f"{topic.name} does not take all that fits into {events.name}: "
                f"{_alter(topic, f'max.message.bytes={2 * largest}')}"
            )


def _disk(case: Case) -> Findings:
    for role in _LETTERS:
        topic = case.facts.topics.get(role)
        if topic is not None and topic.settings is not None and topic.number("retention.bytes", -1) < 0:
            yield Finding(f"{topic.name} grows without end: {_alter(topic, f'retention.bytes={1 << 30}')}")


Check = Callable[[Case], Findings]

CHECKS: dict[str, Check] = {
    "rights": _rights,
    "broker-version": _broker_version,
    "one-broker": _one_broker,
    "offsets-retention": _offsets_retention,
    "transaction-timeout": _transaction_timeout,
    "transactional-ids": _transactional_ids,
    "transaction-verification": _transaction_verification,
    "session-timeout": _session_timeout,
    "offset-metadata": _offset_metadata,
    "replication": _replication,
    "min-isr": _min_isr,
    "unclean-election": _unclean_election,
    "cleanup-policy": _cleanup_policy,
    "retention": _retention,
    "timestamp-type": _timestamp_type,
    "timestamp-bounds": _timestamp_bounds,
    "record-size": _record_size,
    "disk": _disk,
}
"""All checks by the name that they have in metrics, logs and docs/premises.md."""

_OF_BROKERS = frozenset(
    {
        "offsets-retention",
        "transaction-timeout",
        "transactional-ids",
        "transaction-verification",
        "session-timeout",
        "offset-metadata",
    }
)

_OF_TOPICS = frozenset(
    {
        "min-isr",
        "unclean-election",
        "cleanup-policy",
        "retention",
        "timestamp-type",
        "timestamp-bounds",
        "record-size",
        "disk",
    }
)


def _alter(topic: TopicFacts, setting: str) -> str:
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} --add-config {setting}"


def _names(names: Iterable[object]) -> str:
    return ", ".join(str(name) for name in names)


def _duration(seconds: int) -> str:
    for unit, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.4g} {name}"
    return f"{seconds} seconds"
