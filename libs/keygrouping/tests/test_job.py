import pickle

import jsonschema_rs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.aggregate import MOST_WHOLE
from keygrouping.job import (
    MAX_KEY_BYTES,
    MOST_IN_TEXT,
    Extracted,
    Field,
    JobError,
    JobSpec,
    Rejection,
    parse_duration,
    parse_path,
    picker,
    schema,
)

NOW = 1_400_000_000_000
PLAIN = JobSpec.from_json({"aggregates": [{"name": "n", "op": "count"}]})
FLIGHTS = JobSpec.from_json(
    {
        "window": "1d",
        "lateness": "1h",
        "aggregates": [
            {"name": "flights", "op": "count"},
            {"name": "delay", "op": "mean", "field": "dep_delay"},
            {"name": "spread", "op": "variance", "field": "/dep_delay"},
            {"name": "places", "op": "distinct", "field": "/to/dest"},
        ],
    }
)


def extract(spec: JobSpec, value: object, *, key: bytes | None = b"k", time: int = 1000) -> Extracted | Rejection:
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    return spec.extract(key, raw, [], time, NOW)


def reason(outcome: Extracted | Rejection) -> str:
    assert isinstance(outcome, Rejection), outcome
    assert outcome.detail
    assert "\n" not in outcome.detail
    return outcome.reason


def test_a_job_without_fields_never_reads_the_value() -> None:
    assert not PLAIN.needs_value
    assert PLAIN.extract(b"k", b"\xff not json", [], 5, NOW) == Extracted(b"k", 1, 5, ())
    assert PLAIN.extract(b"k", None, [], 5, NOW) == Extracted(b"k", 1, 5, ())


def test_a_field_that_several_aggregates_use_is_read_once() -> None:
    assert FLIGHTS.fields == (Field(("dep_delay",), "number"), Field(("to", "dest"), "text"))
    assert FLIGHTS.fields_of == ((), (0,), (0,), (1,))


def test_an_aggregate_of_several_fields_gets_their_values_together() -> None:
    spec = JobSpec.from_json(
        {
            "aggregates": [
                {"name": "n", "op": "count"},
                {"name": "sold", "op": "sum", "field": "volume"},
                {"name": "price", "op": "vwap", "field": "/last/price", "weight": "volume"},
                {"name": "kinds", "op": "naive-bayes", "field": "side", "features": ["volume", "venue"]},
            ]
        }
    )
    volume, price = Field(("volume",), "number"), Field(("last", "price"), "number")
    texts = tuple(Field((name,), "text") for name in ("side", "volume", "venue"))
    assert spec.fields == (volume, price, *texts)
    assert spec.fields_of == ((), (0,), (1, 0), (2, 3, 4))
    found = extract(spec, {"volume": 3, "last": {"price": 1.5}, "side": "buy"})
    assert isinstance(found, Extracted)
    pickers = [picker(positions) for positions in spec.fields_of]
    assert [pick and pick(found.fields) for pick in pickers] == [None, 3, (1.5, 3), ("buy", "3", None)]


def test_missing_and_null_fields_are_none_as_in_sql() -> None:
    assert extract(FLIGHTS, {"dep_delay": None}) == Extracted(b"k", 1, 1000, (None, None))
    assert extract(FLIGHTS, {"dep_delay": -3, "to": {"dest": "ATL"}}) == Extracted(b"k", 1, 1000, (-3, "ATL"))
    assert extract(FLIGHTS, {"to": 5}) == Extracted(b"k", 1, 1000, (None, None))


def test_a_counted_field_may_hold_anything() -> None:
    spec = JobSpec.from_json({"aggregates": [{"name": "n", "op": "count", "field": "x"}]})
    values: list[object] = [0, "", False, [], {}, 1.5]
    for present in values:
        assert extract(spec, {"x": present}) == Extracted(b"k", 1, 1000, (1,))
    assert extract(spec, {"x": None}) == extract(spec, {}) == Extracted(b"k", 1, 1000, (None,))


def test_integers_count_as_text_by_their_decimal_digits() -> None:
    assert extract(FLIGHTS, {"to": {"dest": 42}}) == Extracted(b"k", 1, 1000, (None, "42"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "invalid-json"),
        (b"{", "invalid-json"),
        (b'{"dep_delay": NaN}', "invalid-json"),
        (b'{"dep_delay": "\xff"}', "invalid-json"),
        (b"[1]", "not-an-object"),
        (b"null", "not-an-object"),
    ],
)
def test_a_value_that_the_job_cannot_use_is_refused_with_its_reason(value: bytes, expected: str) -> None:
    assert reason(extract(FLIGHTS, value)) == expected


@pytest.mark.parametrize(
    ("value", "skipped"),
    [
        (b'{"dep_delay": "3"}', (0,)),
        (b'{"dep_delay": true}', (0,)),
        (b'{"dep_delay": [3], "to": {"dest": 1.5}}', (0, 1)),
        (b'{"dep_delay": 3, "to": {"dest": {}}}', (1,)),
        (b'{"dep_delay": 3, "to": {"dest": 18446744073709551616}}', (1,)),
        (b'{"dep_delay": null, "to": 5}', ()),
    ],
)
def test_a_field_of_the_wrong_type_is_skipped_as_a_missing_one_is(value: bytes, skipped: tuple[int, ...]) -> None:
    found = extract(FLIGHTS, value)
    assert isinstance(found, Extracted)
    assert found.skipped == skipped
    assert [found.fields[position] for position in skipped] == [None] * len(skipped)


def test_a_tombstone_is_refused_only_where_fields_are_needed() -> None:
    assert reason(FLIGHTS.extract(b"k", None, [], 5, NOW)) == "no-value"


def test_a_record_without_key_is_refused_and_an_empty_key_is_a_key() -> None:
    assert reason(extract(PLAIN, {}, key=None)) == "no-key"
    assert extract(PLAIN, {}, key=b"") == Extracted(b"", 1, 1000, ())


def test_a_key_that_would_not_fit_a_result_is_refused() -> None:
    assert isinstance(extract(PLAIN, {}, key=b"k" * MAX_KEY_BYTES), Extracted)
    assert reason(extract(PLAIN, {}, key=b"k" * (MAX_KEY_BYTES + 1))) == "key-too-large"


def test_event_times_before_1970_and_far_ahead_of_the_clock_are_refused() -> None:
    assert reason(extract(PLAIN, {}, time=-1)) == "no-timestamp"
    limit = NOW + PLAIN.max_future_ms
    assert isinstance(extract(PLAIN, {}, time=limit), Extracted)
    assert reason(extract(PLAIN, {}, time=limit + 1)) == "timestamp-in-the-future"


def test_the_key_can_come_from_the_last_header_of_a_name() -> None:
    spec = JobSpec.from_json({"key": {"header": "user"}})
    headers = [("user", b"a"), ("other", b"x"), ("user", b"b")]
    assert spec.extract(None, None, headers, 1, NOW) == Extracted(b"b", 1, 1, ())
    assert reason(spec.extract(b"k", None, [("user", None)], 1, NOW)) == "no-key"


@pytest.mark.parametrize(
    ("user", "key"), [("çığ", "çığ".encode()), ("", b""), (7, b"7"), (None, None), (1.5, None), (True, None)]
)
def test_the_key_can_come_from_a_field(user: object, key: bytes | None) -> None:
    spec = JobSpec.from_json({"key": {"field": "/user/id"}})
    outcome = extract(spec, {"user": {"id": user}}, key=None)
    if key is None:
        assert reason(outcome) in ("no-key", "wrong-type")
    else:
        assert isinstance(outcome, Extracted)
        assert outcome.key == key


def test_the_weight_is_one_the_values_size_or_a_field() -> None:
    sized = JobSpec.from_json({"weight": "size"})
    assert sized.extract(b"k", b"12345", [], 1, NOW) == Extracted(b"k", 5, 1, ())
    assert sized.extract(b"k", None, [], 1, NOW) == Extracted(b"k", 0, 1, ())
    cost = JobSpec.from_json({"weight": {"field": "cost"}})
    assert extract(cost, {"cost": 2.5}) == Extracted(b"k", 2.5, 1000, ())
    assert extract(cost, {"cost": 1e18}) == Extracted(b"k", 1e18, 1000, ())
    for wrong in (None, -1, "2", True, 1.1e18, 1e300):
        assert reason(extract(cost, {"cost": wrong})) == "no-weight"


@pytest.mark.parametrize(
    ("unit", "value", "time_ms"),
    [
        ("ms", 1357016400000, 1357016400000),
        ("s", 1357016400, 1357016400000),
        ("iso", "2013-01-01T05:00:00Z", 1357016400000),
        ("iso", "2013-01-01T00:00:00.25-05:00", 1357016400250),
        ("iso", "2013-01-01", None),
        ("iso", "2013-13-01T05:00:00Z", None),
        ("iso", 1357016400000, None),
        ("ms", "1357016400000", None),
        ("ms", 1.5, None),
        ("ms", None, None),
    ],
)
def test_the_event_time_can_come_from_a_field(unit: str, value: object, time_ms: int | None) -> None:
    outcome = extract(JobSpec.from_json({"time": {"field": "at", "unit": unit}}), {"at": value})
    if time_ms is None:
        assert reason(outcome) == "no-timestamp"
    else:
        assert isinstance(outcome, Extracted)
        assert outcome.time_ms == time_ms


@given(st.integers(0, 10**13), st.integers(1, 10**9), st.integers(0, 10**9))
def test_every_time_lies_in_its_window(time_ms: int, length: int, offset: int) -> None:
    spec = JobSpec((), window_ms=length, window_offset_ms=offset)
    start = spec.window_of(time_ms)
    assert start <= time_ms < start + length
    assert (start - offset) % length == 0


@given(st.binary(max_size=40), st.one_of(st.none(), st.binary(max_size=5)), st.integers(-(2**40), 2**50))
def test_any_bytes_are_either_extracted_or_refused(value: bytes, key: bytes | None, time: int) -> None:
    outcome = FLIGHTS.extract(key, value, [("h", value)], time, NOW)
    assert isinstance(outcome, Extracted | Rejection)


def faults_of(**members: object) -> list[str]:
    with pytest.raises(JobError) as raised:
        JobSpec.from_json(members)
    return str(raised.value).splitlines()


def test_all_faults_of_a_job_are_told_at_once_each_with_what_would_be_right() -> None:
    field = '{"field": a field name or a JSON pointer}'
    units = '{"field": a field name or a JSON pointer, "unit": "ms", "s" or "iso"}'
    assert faults_of(
        key={"query": "x"},
        weight=2,
        time={"field": "t", "unit": "days"},
        format="avro",
        window="soon",
        window_offset=0.5,
        lateness=-1,
        max_future=None,
        confirmations=129,
        colour="red",
        aggregates=[{"name": "m", "op": "median", "field": "x"}, {"name": "s", "op": "sum"}],
    ) == [
        f"""key: must be "record", {{"header": a text}} or {field}, not {{'query': 'x'}}""",
        f"""weight: must be 1, "1", "size" or {field}, not 2""",
        f"""time: must be "timestamp" or {units}, not {{'field': 't', 'unit': 'days'}}""",
        """format: must be "json", not 'avro'""",
        "window: 'soon' is no duration: give milliseconds or a text such as '30s', '5m', '1h', '1d'",
        "window_offset: 0.5 is no duration: give milliseconds or a text such as '30s', '5m', '1h', '1d'",
        "lateness: -1 is no duration: give milliseconds or a text such as '30s', '5m', '1h', '1d'",
        "max_future: None is no duration: give milliseconds or a text such as '30s', '5m', '1h', '1d'",
        "confirmations: must be an integer from 1 to 128, not 129",
        "aggregates[0]: op 'median' needs all values of a key in one place, so it can't be merged from partials; use "
        'histogram, which has its quantiles ("quantiles": [0.5]) within sure bounds',
        "aggregates[1]: op 'sum' needs a field",
        "colour: unknown; the job has key, weight, time, format, window, window_offset, lateness, max_future, "
        "confirmations, aggregates",
    ]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *(("key", value) for value in ("records", {"header": ""}, {"field": 5}, {"field": ""}, {"field": "/"})),
        *(("key", value) for value in ({"field": "a", "header": "b"}, {}, None, ["record"])),
        *(("weight", value) for value in (True, 1.0, "field", {"header": "a"}, {"field": 7})),
        *(("time", value) for value in ("now", {"unit": "ms"}, {"field": "t", "unit": "us"}, {"header": "t"})),
        *(("time", value) for value in ({"field": "t", "zone": "UTC"}, 5, None)),
        *(("aggregates", value) for value in ("count", {"name": "n"}, 5, None)),
    ],
)
def test_a_member_that_is_none_of_its_choices_is_refused(member: str, value: object) -> None:
    (line,) = faults_of(**{member: value})
    assert line.startswith(f"{member}: must be ") and "\n" not in line


def test_an_editors_link_to_the_schema_is_no_fault() -> None:
    assert JobSpec.from_json({"$schema": "job.schema.json"}) == JobSpec.from_json({})


COUNT = {"name": "n", "op": "count"}
GOOD: list[dict[str, object]] = [
    {},
    {"key": {"header": "h"}, "weight": "size", "time": {"field": "/a/b", "unit": "iso"}, "window": "5 m"},
    {"key": {"field": "k"}, "weight": "1", "time": {"field": "t"}, "window": 1, "confirmations": 1, "max_future": "1d"},
    {"weight": {"field": "w"}, "lateness": 0, "aggregates": [COUNT, {"name": "d", "op": "distinct", "field": "d"}]},
    {"aggregates": [{"name": "t", "op": "top-k", "field": "f", "k": 3}]},
    {"aggregates": [COUNT, {"name": "v", "op": "vwap", "field": "f", "weight": "w"}]},
    {"aggregates": [{"name": "h", "op": "histogram", "field": "f", "quantiles": [0.5]}]},
    {"aggregates": [{"name": "b", "op": "naive-bayes", "field": "f", "features": ["g", "h"]}]},
]
BAD: list[dict[str, object]] = [
    {"key": {"header": ""}}, {"weight": 2}, {"time": {"unit": "s"}}, {"window": 0}, {"window": "0s"}, {"window": "1w"},
    {"lateness": -1}, {"confirmations": 0}, {"colour": 1}, {"aggregates": [{"name": "a"}]}, {"aggregates": ["count"]},
    {"aggregates": [{"name": "a-b", "op": "count"}]}, {"aggregates": [{"name": "s", "op": "sum"}]},
    {"aggregates": [{"name": "s", "op": "sum", "field": "x", "k": 1}]},
    {"aggregates": [{"name": "t", "op": "top-k", "field": "x", "k": 0}]},
    {"aggregates": [{"name": "b", "op": "naive-bayes", "field": "f", "features": ["g", "g"]}]},
]  # fmt: skip


def test_the_schema_takes_and_refuses_what_the_programs_do() -> None:
    validator = jsonschema_rs.Draft202012Validator(schema())
    for job in GOOD:
        JobSpec.from_json(job)
        validator.validate(job)
    for job in BAD:
        with pytest.raises(JobError):
            JobSpec.from_json(job)
        assert not validator.is_valid(job), job


def test_a_member_that_nobody_explains_is_in_no_schema() -> None:
    properties = schema()["properties"]
    assert {name for name, inner in properties.items() if not inner.get("description")} == set()
    kinds = [kind["then"] for kind in schema()["$defs"]["aggregate"]["allOf"]]
    assert all(kind["description"].endswith((".", ":")) for kind in kinds)


@pytest.mark.parametrize("text", ["", "[]", "5", "{"])
def test_a_text_that_is_no_job_is_refused(text: str) -> None:
    with pytest.raises(JobError):
        JobSpec.from_json(text)


def test_a_window_of_no_length_is_refused() -> None:
    with pytest.raises(JobError, match="at most 2900000d"):
        JobSpec.from_json({"window": "2900001d"})
    with pytest.raises(JobError, match="at least 1 ms"):
        JobSpec.from_json({"window": 0})


def test_durations_are_milliseconds_or_numbers_with_a_unit() -> None:
    assert [parse_duration(d) for d in (7, "250ms", "30s", "5m", "1h", "1d")] == [
        7,
        250,
        30_000,
        300_000,
        3_600_000,
        86_400_000,
    ]


def test_a_path_is_a_pointer_or_a_plain_name() -> None:
    assert parse_path("dep_delay") == ("dep_delay",)
    assert parse_path("/a~1b/c~0d") == ("a/b", "c~d")
    assert Field(("a/b", "c~d"), "text").pointer == "/a~1b/c~0d"


@pytest.mark.parametrize("value", [0, -1, 129, 1.5, True, "8", None])
def test_confirmations_are_a_small_whole_number(value: object) -> None:
    with pytest.raises(JobError, match=r"confirmations: must be an integer from 1 to 128, not "):
        JobSpec.from_json({"confirmations": value})
    assert JobSpec.from_json({"confirmations": 128}).confirmations == 128


def test_the_largest_integer_that_is_a_text_is_said() -> None:
    for number, fits in (
        (MOST_IN_TEXT, True),
        (MOST_IN_TEXT + 1, False),
        (-MOST_WHOLE, True),
        (-MOST_WHOLE - 1, False),
    ):
        found = extract(FLIGHTS, b'{"to": {"dest": %d}}' % number)
        assert isinstance(found, Extracted)
        assert (found.fields[1], found.skipped) == ((str(number), ()) if fits else (None, (1,)))


def test_a_job_in_another_process_has_nothing_of_this_ones_code() -> None:
    job = JobSpec.from_json({"aggregates": [{"name": "t", "op": "sum", "field": "x"}], "time": {"field": "t"}})
    assert job.extract(b"k", b'{"x":1,"t":1}', (), 0, 10) == Extracted(b"k", 1, 1, (1,))
    read = pickle.loads(pickle.dumps(job))
    assert read == job
    assert "extraction" in vars(job) and "extraction" not in vars(read)
