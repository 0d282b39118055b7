"""The metrics of the exporter of `keygrouping inspect`, for a topic that nobody routes."""

from __future__ import annotations

from keygrouping.job import REASONS

from keygrouping_service.observability.metrics import Registration
from keygrouping_service.records.record import TOO_LARGE, UNDECODABLE

_own = Registration("inspect")

EVENTS = _own.counter(
    "events_total", "events", "Records that came to the topic; by estimate where a part was read.", "topic"
)
READ = _own.counter("read_total", "records", "Records of the topic that were read.", "topic")
LEFT_OUT = _own.counter(
    "left_out_total",
    "records",
    "Records that have no key or weight of use, or can't be read: a batch that can't be counts as one.",
    "topic",
    "reason",
)
READ_AT = _own.gauge(
    "read_timestamp_seconds",
    "seconds",
    "When the topic was last read up to its end, since 1970; at first the exporter's start.",
    "topic",
)
PARTITIONS = _own.gauge("partitions", "partitions", "Partitions of the topic.", "topic")
PARTITION_IMBALANCE = _own.gauge(
    "partition_imbalance", "ratio", "λ of the topic's partitions: the largest load over the average.", "topic"
)
WORKS_LIKE = _own.gauge(
    "works_like_workers", "workers", "Whose work the topic's consumers do at most, one a partition.", "topic"
)
USEFUL = _own.gauge(
    "useful_consumers", "consumers", "Consumers of the topic beyond these do next to nothing more.", "topic"
)
KEY_CEILING = _own.gauge(
    "key_ceiling_workers",
    "workers",
    "Whose work any number of workers does at most while no key is split: 1 over the heaviest key's share.",
    "topic",
)
IMBALANCE = _own.gauge(
    "imbalance",
    "ratio",
    "λ that a grouping would have given: key hashing, and level-fill, which splits keys.",
    "topic",
    "grouping",
    "workers",
)
HOT_SHARE = _own.gauge("hot_key_share", "ratio", "Part of all weight of a heavy key.", "topic", "rank")
HOT_WIDTH = _own.gauge(
    "hot_key_width",
    "workers",
    "Over how many workers level-fill would spread that key, of as many as there are partitions.",
    "topic",
    "rank",
)
NAMED_SHARE = _own.gauge("named_key_share", "ratio", "The same as the share, by the key's name.", "topic", "hot_key")


def begin(topic: str) -> None:
    """All that is counted of a topic is 0 from now on: alerts can't see the first increase of a series otherwise."""
    EVENTS.labels(topic)
    READ.labels(topic)
    for reason in (*REASONS, TOO_LARGE, UNDECODABLE):
        LEFT_OUT.labels(topic, reason)
