"""Quix Streams: `to_topic` by key, and a window of count and sums after `group_by`; `eos` is its exactly-once."""

import json

from common import APPLICATION, BROKERS, FOLDER, GRACE_MS, MODE, SOURCE, TARGET, WINDOW_MS, WORK, first
from quixstreams import Application
from quixstreams.dataframe.windows import Count, Sum

app = Application(
    broker_address=BROKERS,
    consumer_group=APPLICATION,
    auto_offset_reset="earliest",
    commit_interval=1.0,
    state_dir=FOLDER,
    processing_guarantee="exactly-once" if MODE == "eos" else "at-least-once",
    loglevel="WARNING",
)
if WORK == "route":
    # >route
    source = app.topic(SOURCE, value_deserializer="bytes", key_deserializer="bytes")
    target = app.topic(TARGET, value_serializer="bytes", key_serializer="bytes")
    app.dataframe(source).update(lambda _: first()).to_topic(target)
    # <route
else:
    # >count
    source = app.topic(SOURCE, value_deserializer="json", key_deserializer="string")
    target = app.topic(TARGET, value_serializer="string", key_serializer="string")
    frame = app.dataframe(source).update(lambda _: first())
    frame = frame.group_by("key", key_serializer="string", key_deserializer="string")
    window = frame.tumbling_window(WINDOW_MS, grace_ms=GRACE_MS)
    rows = window.agg(n=Count(), a=Sum("a"), b=Sum("b")).current()
    rows.apply(lambda row: json.dumps([row["start"], row["n"], row["a"], row["b"]])).to_topic(target)
    # <count
app.run()
