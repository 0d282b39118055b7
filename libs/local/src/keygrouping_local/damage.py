"""What a disk does to an embedded broker's log, for tests of readers."""

import time

from keygrouping_local.broker import EmbeddedBroker

_WRITTEN_WITHIN = 30.0
_LOOK_SECONDS = 0.05


def damage(broker: EmbeddedBroker, topic: str, what: bytes, by: bytes) -> None:
    """Writes other bytes of the same length into the log of partition 0; AssertionError if it has no such ones."""
    assert len(what) == len(by), "what follows would move"
    deadline = time.monotonic() + _WRITTEN_WITHIN
    while time.monotonic() < deadline:
        for segment in (broker.log.parent / "kafka" / f"{topic}-0").glob("*.log"):
            data = segment.read_bytes()
            if what in data:
                with segment.open("r+b") as file:
                    file.seek(data.index(what))
                    file.write(by)
                return
        time.sleep(_LOOK_SECONDS)
    raise AssertionError(f"{what!r} is in no segment of {topic}")
