"""What is written in place of outputs that a broker refuses for good: the dead letters of their events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keygrouping_app.dead_letters import dead_letter, is_cut, without_value
from keygrouping_app.events import Event, Outgoing
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.partition import Returned
from keygrouping_app.scheduler import Failure
from keygrouping_app.tally import REFUSED

_MOST_DETAIL = 1000


def records_in(returned: Sequence[Returned]) -> list[Outgoing]:
    """All of them, in their order."""
    return [one for each in returned for one in each.outgoing]


def refused_of(returned: Sequence[Returned], why: Mapping[int, BaseException]) -> dict[int, Failure]:
    """Which are refused, by their place, given the errors of records by the place among `records_in`.

    Raises the error of a dead letter that can't be made any smaller: there is no other place for its event.
    """
    found: dict[int, Failure] = {}
    place = 0
    for number, each in enumerate(returned):
        for one in each.outgoing:
            error = why.get(place)
            place += 1
            if error is None:
                continue
            if each.letters and is_cut(one):
                raise error
            detail = f"the broker refuses a record of {one.size} bytes for {one.topic!r}: {error}"[:_MOST_DETAIL]
            found.setdefault(number, Failure(REFUSED, detail, retry=False))
    return found


def letters_of(events: Sequence[Event], failure: Failure, settings: Settings) -> list[Outgoing]:
    """The dead letters of events."""
    return [dead_letter(event, failure, settings.dead_letters, settings.group) for event in events]


def instead_of(each: Returned, failure: Failure, settings: Settings) -> Returned:
    """Dead letters instead of what is refused; without values instead of dead letters."""
    if each.letters:
        return Returned(each.events, [without_value(one) for one in each.outgoing], letters=True)
    return Returned(each.events, letters_of(each.events, failure, settings), letters=True)
