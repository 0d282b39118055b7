import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.partial import MEMBERS, Partial, RecordError, Result, encode_receipt

whole = st.integers(0, 2**53)
large = st.integers(0, 2**100)
numbers = st.one_of(whole, large, st.floats(0, allow_nan=False, allow_infinity=False))
states = st.dictionaries(st.text(max_size=5), st.one_of(whole, st.none(), st.dictionaries(st.just("n"), whole)))
sums = st.integers(0, 2**128 - 1)
topics = st.text("abcXYZ019-_", min_size=22, max_size=22)
partials = st.builds(
    Partial,
    whole,
    whole,
    whole,
    whole,
    numbers,
    whole,
    whole,
    whole,
    states,
    topic=topics,
    receipt=sums.map(encode_receipt),
)
values = st.dictionaries(st.text(max_size=5), st.none() | numbers | st.lists(large | st.text(max_size=5), max_size=3))
results = st.builds(Result, st.binary(max_size=9), whole, whole, large, numbers, st.booleans(), values, sums)


@given(partials)
def test_a_partial_survives_its_encoding(partial: Partial) -> None:
    assert Partial.decode(partial.encode()) == partial


@given(results)
def test_a_result_survives_its_encoding_whatever_its_key(result: Result) -> None:
    assert Result.decode(result.encode()) == result


@given(results, results)
def test_results_share_a_record_key_only_for_the_same_key_and_window(one: Result, other: Result) -> None:
    assert (one.record_key == other.record_key) == ((one.key, one.start) == (other.key, other.start))


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{}", b"[]", b"\xff", b'{"v":2}', b'{"v":1,"worker":"3"}', b'{"v":1,"worker":true}'],
)
def test_what_is_no_partial_is_refused(value: bytes | None) -> None:
    with pytest.raises(RecordError):
        Partial.decode(value)


def test_the_schema_is_that_of_a_partial() -> None:
    assert tuple(MEMBERS) == Partial.__slots__
    written = orjson.loads(Partial(0, 0, 1, 1, 1, 0, 0, 0, {}).encode())
    assert tuple(written) == ("v", *MEMBERS)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_that_is_missing_or_of_another_kind_is_named(member: str) -> None:
    members = orjson.loads(Partial(0, 0, 1, 1, 1, 0, 0, 0, {}).encode())
    wrongs: list[object] = [None, [], True, "\u0660"]
    for wrong in wrongs:
        with pytest.raises(RecordError, match=f"member '{member}' "):
            Partial.decode(orjson.dumps(members | {member: wrong}))
    del members[member]
    with pytest.raises(RecordError, match=f"member '{member}' "):
        Partial.decode(orjson.dumps(members))


def test_a_partial_needs_weight_and_aggregates() -> None:
    whole_members = b'{"v":1,"worker":1,"start":0,"end":1,"events":1,"first":0,"last":0,"epoch":0'
    with pytest.raises(RecordError, match="weight"):
        Partial.decode(whole_members + b"}")


def test_a_result_names_its_missing_member() -> None:
    with pytest.raises(RecordError, match="events"):
        Result.decode(b'{"v":1,"key":"a","start":0,"end":1,"receipt":"%032x"}' % 7)


@pytest.mark.parametrize("receipt", [None, 7, "", "7", "F" * 32, "0" * 33, "\u0660" * 32])
def test_a_sum_of_hashes_has_32_hexadecimal_digits(receipt: object) -> None:
    members = orjson.loads(Partial(0, 0, 1, 1, 1, 0, 0, 0, {}, receipt=encode_receipt(7)).encode())
    assert members["receipt"] == "0" * 31 + "7"
    with pytest.raises(RecordError, match="receipt"):
        Partial.decode(orjson.dumps(members | {"receipt": receipt}))


def test_a_result_holds_integers_of_any_size_as_numbers_and_no_infinity() -> None:
    values = {"sum": 10**30, "mean": float("inf"), "of": [1e300, 5]}
    written = Result(b"k", 0, 1, 1 << 70, 1, True, values).encode()
    assert b'"events":1180591620717411303424' in written
    assert b'"sum":1000000000000000000000000000000,"mean":null,' in written


@pytest.mark.parametrize("weight", ["", "x", "-1", "1" * 70, "1e9999", "NaN", None, True, [1]])
def test_a_weight_that_is_no_number_is_refused(weight: object) -> None:
    members = {"v": 1, **dict.fromkeys(("worker", "start", "end", "events", "first", "last", "epoch"), 1)}
    with pytest.raises(RecordError, match="weight"):
        Partial.decode(orjson.dumps({**members, "weight": weight, "aggregates": {}}))
