"""Laws of the router's small parts: settings, caution."""

import pytest
from aiokafka import ConsumerRecord
from aiokafka.errors import MessageSizeTooLargeError
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_router.caution import Batch, Caution, remains_of
from keygrouping_router.settings import RouterSettings
from keygrouping_service.kafka import Fatal
from keygrouping_service.settings import load

ERROR = MessageSizeTooLargeError()


@given(st.integers(2, 3000), st.sets(st.integers(0, 2999), max_size=3))
def test_caution_bans_exactly_the_refused_records(most: int, poison: set[int]) -> None:
    caution, position, banned, attempts = Caution(most), 0, set(), 0
    while position < 3000:
        attempts += 1
        batch = range(position, min(3000, position + caution.limit(position)))
        if len(batch) == 1 and caution.banned(position):
            banned.add(position)
        elif poison & set(batch):
            caution.refused(Batch(batch.start, batch.stop, len(batch)), ERROR)
            continue
        position = batch.stop
    assert banned == poison
    assert attempts <= 3000 // most + 1 + 60 * len(poison)


def test_caution_gives_up_when_the_dead_letter_is_refused() -> None:
    caution = Caution(10)
    caution.refused(Batch(5, 6, 1), ERROR)
    with pytest.raises(Fatal, match="offset 5"):
        caution.refused(Batch(5, 6, 1), ERROR)


def test_remains_leave_out_what_is_large_and_tell_the_time() -> None:
    big = ConsumerRecord("e", 0, 9, 123, 0, b"k", b"x" * 200_000, None, 1, 1, (("h", b"y" * 200_000),))
    remains = remains_of(big, 456)
    assert (remains.key, remains.value, remains.timestamp) == (b"k", None, 456)
    headers = dict(remains.headers)
    assert "h" not in headers
    assert headers["keygrouping-timestamp"] == b"123"
    assert headers["keygrouping-reason"] == b"refused-by-broker"


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("GROUPING", "magic", "KEYGROUPING_ROUTER_GROUPING: unknown grouping 'magic'"),
        ("GROUPING_SETTINGS", '{"speed": 1}', "unknown setting speed"),
        ("GROUPING_SETTINGS", '{"interval": null}', "use sharing=shared"),
        ("SHARING", "some", "KEYGROUPING_ROUTER_SHARING: Input should be 'shared'"),
        ("GROUPING_SETTINGS", "no json", "KEYGROUPING_ROUTER_GROUPING_SETTINGS: Invalid JSON"),
        ("DELIVERY", "at_most_once", "KEYGROUPING_ROUTER_DELIVERY: Input should be 'exactly_once'"),
    ],
)
def test_wrong_settings_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, fault: str
) -> None:
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "k:1")
    monkeypatch.setenv("KEYGROUPING_JOB", '{"aggregates": [{"name": "n", "op": "count"}]}')
    monkeypatch.setenv(f"KEYGROUPING_ROUTER_{name}", value)
    with pytest.raises(SystemExit):
        load(RouterSettings)
    assert fault in capsys.readouterr().err
