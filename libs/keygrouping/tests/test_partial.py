import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.partial import Partial, RecordError, Result

whole = st.integers(0, 2**53)
numbers = st.one_of(whole, st.floats(allow_nan=False, allow_infinity=False))
states = st.dictionaries(st.text(max_size=5), st.one_of(whole, st.none(), st.dictionaries(st.just("n"), whole)))
sums = st.integers(0, 2**128 - 1)
partials = st.builds(Partial, whole, whole, whole, whole, numbers, whole, whole, whole, states, sums)
results = st.builds(Result, st.binary(max_size=9), whole, whole, whole, numbers, st.booleans(), states, sums)


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


def test_a_partial_needs_weight_and_aggregates() -> None:
    whole_members = b'{"v":1,"worker":1,"start":0,"end":1,"events":1,"first":0,"last":0,"epoch":0'
    with pytest.raises(RecordError, match="weight"):
        Partial.decode(whole_members + b"}")


def test_a_result_names_its_missing_member() -> None:
    with pytest.raises(RecordError, match="events"):
        Result.decode(b'{"v":1,"key":"a","start":0,"end":1,"receipt":"%032x"}' % 7)


@pytest.mark.parametrize("receipt", [None, 7, "", "7", "F" * 32, "0" * 33, "\u0660" * 32])
def test_a_sum_of_hashes_has_32_hexadecimal_digits(receipt: object) -> None:
    members = orjson.loads(Partial(0, 0, 1, 1, 1, 0, 0, 0, {}, 7).encode())
    assert members["receipt"] == "0" * 31 + "7"
    with pytest.raises(RecordError, match="receipt"):
        Partial.decode(orjson.dumps(members | {"receipt": receipt}))
