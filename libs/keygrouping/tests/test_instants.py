"""Laws of event times: nothing is rounded up, whatever is written behind the point, in whatever zone or century."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from math import floor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from keygrouping.instants import ms_of, ms_of_number, ms_of_rfc3339
from keygrouping.job import Extracted, JobSpec

seconds = st.integers(-62_135_510_400, 253_402_214_399)
digits = st.text("0123456789", max_size=12)
offsets = st.integers(-(24 * 60 - 1), 24 * 60 - 1)


def moment(second: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def written(second: int, fraction: str, offset: int) -> str:
    local = moment(second).astimezone(timezone(timedelta(minutes=offset)))
    zone = "Z" if offset == 0 else f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
    clock = f"{local.hour:02}:{local.minute:02}:{local.second:02}"
    return f"{local.year:04}-{local.month:02}-{local.day:02}T{clock}{'.' if fraction else ''}{fraction}{zone}"


@given(seconds, digits, offsets)
@example(7199, "9996", 0)
@example(-1, "9999999", 90)
@example(1, "001", 0)
def test_a_written_time_is_in_the_millisecond_that_it_lies_in(second: int, fraction: str, offset: int) -> None:
    exact = second + Fraction(int(fraction or "0"), 10 ** len(fraction))
    assert ms_of_rfc3339(written(second, fraction, offset)) == floor(exact * 1000)


@given(seconds, st.integers(0, 999_999))
def test_a_moment_is_in_the_millisecond_that_it_lies_in(second: int, micros: int) -> None:
    assert ms_of(moment(second) + timedelta(microseconds=micros)) == second * 1000 + micros // 1000


@given(seconds, digits)
@example(1, "001")
def test_a_number_of_seconds_counts_by_its_digits(second: int, fraction: str) -> None:
    text = f"{second}.{fraction or '0'}"
    for number in (text, Decimal(text)):
        assert ms_of_number(number, 1000) == floor(Fraction(text) * 1000)
    assert ms_of_number(second, 1000) == second * 1000


@given(st.integers(0, 1_700_000_000), digits)
def test_a_job_reads_the_time_of_a_field_so(second: int, fraction: str) -> None:
    job = JobSpec.from_json({"aggregates": [], "time": {"field": "t", "unit": "iso"}})
    value = f'{{"t":"{written(second, fraction, 0)}"}}'.encode()
    found = job.extract(b"k", value, [], 0, 1 << 62)
    assert isinstance(found, Extracted)
    assert found.time_ms == second * 1000 + int(fraction[:3].ljust(3, "0"))


def test_small_letters_are_as_good() -> None:
    assert ms_of_rfc3339("1970-01-01t00:00:01.0019z") == 1001


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00,5Z",
        "2026-01-31T23:59:60Z", "2026-01-31T24:00:00Z", "2026-02-29T12:00:00Z", "0000-01-01T00:00:00Z",
        "2026-01-31T12:00:00+24:00", "2026-01-31T12:00:00+19:75", "٢٠٢٦-01-31T12:00:00Z", "", "Z",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    assert ms_of_rfc3339(text) is None


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1e99", "1" * 50])
def test_what_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        ms_of_number(text, 1000)
