"""Laws of poison-record bisection: exactly the records at which work fails are left out, whatever it fails with."""

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError, MessageSizeTooLargeError, UnknownError
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_service.records.bisection import Bisection, DefectError, Suspects

REFUSED = MessageSizeTooLargeError()
END = 3000


class Work:
    """Work over offsets 0 to 2999 that commits as it goes, or only at the end; it fails at each poison record."""

    def __init__(self, most: int, poison: set[int], error: Exception, *, commits: bool) -> None:
        self.bisection, self.left_out, self.sessions = Bisection(), set[int](), 0
        self._most, self._poison, self._error, self._commits = most, poison, error, commits
        self._committed = 0

    def run(self) -> None:
        while not self._session():
            self.sessions += 1
            assert self.sessions < 1000

    def _session(self) -> bool:
        position, taken = self._committed, 0
        while position < END:
            if self.bisection.careful(position):
                taken = position
            batch = range(position, min(END, position + self.bisection.most(position, self._most)))
            left_out = {offset for offset in batch if self.bisection.banned(offset)}
            if self._poison & set(batch) - left_out:
                first = position if self._commits else taken
                assert self.bisection.failed(Suspects(first, batch.stop, batch.stop - first), self._error)
                return False
            self.left_out |= left_out
            position = batch.stop
            if self._commits:
                self._committed = taken = position
        return True


@given(st.integers(1, END), st.sets(st.integers(0, END - 1), max_size=3), st.booleans(), st.booleans())
def test_exactly_the_poison_records_are_left_out(most: int, poison: set[int], refused: bool, commits: bool) -> None:
    work = Work(most, poison, REFUSED if refused else TypeError("poison"), commits=commits)
    work.run()
    assert work.left_out == poison
    assert work.sessions <= (6 if refused else 9) * len(poison)


def failures_until_banned(error: Exception, most: int = 20) -> int | None:
    bisection = Bisection()
    for attempt in range(1, most):
        if not bisection.failed(Suspects(5, 6, 1), error):
            return None
        if bisection.banned(5):
            return attempt
    return None


@pytest.mark.parametrize(
    ("error", "failures"),
    [
        (REFUSED, 1),
        (MemoryError(), 2),
        (TypeError("a defect"), 2),
        (RecursionError(), 2),
        (UnknownError(), 5),
        (KafkaConnectionError(), None),
        (KafkaError("the producer has failed"), None),
        (TimeoutError(), None),
        (ConnectionResetError(), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_record_is_left_out_when_an_error_that_does_not_pass_has_repeated(
    error: Exception, failures: int | None
) -> None:
    assert failures_until_banned(error) == failures


def test_errors_of_other_kinds_or_elsewhere_are_no_repeats() -> None:
    bisection = Bisection()
    for first, error in [(5, TypeError()), (6, TypeError()), (5, TypeError()), (5, ValueError())]:
        assert bisection.failed(Suspects(first, first + 1, 1), error)
    assert not bisection.bans


def test_without_records_there_is_nobody_to_blame() -> None:
    assert not Bisection().failed(None, TypeError())


def test_it_gives_up_when_the_dead_letter_fails_too() -> None:
    bisection = Bisection()
    bisection.failed(Suspects(5, 6, 1), REFUSED)
    assert bisection.banned(5) == ("refused-by-broker", f"MessageSizeTooLargeError: {REFUSED}")
    with pytest.raises(DefectError, match="even the dead letter for the record at offset 5"):
        bisection.failed(Suspects(5, 6, 1), REFUSED)


def test_it_gives_up_when_all_records_fail_but_not_when_only_many_do() -> None:
    all_fail, many_fail = Bisection(), Bisection()
    for offset in range(100):
        all_fail.failed(Suspects(offset, offset + 1, 1), REFUSED)
    with pytest.raises(DefectError, match="look for a defect or a wrong setting"):
        all_fail.failed(Suspects(100, 101, 1), REFUSED)
    for offset in range(0, 1000, 2):
        many_fail.failed(Suspects(offset, offset + 1, 1), REFUSED)
        many_fail.passed()
    assert many_fail.banned(998)
