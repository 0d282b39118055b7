"""A transaction in which the dead letters of events stand instead of outputs that a broker refuses for good."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.structs import OffsetAndMetadata

from keygrouping_app.events import Outgoing
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.overflow import overflow_of
from keygrouping_app.kafka.partition import Returned
from keygrouping_app.kafka.refusals import all_refused, blamed, instead_of, other_than_outputs, records_in
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.kafka.writing import RefusedError
from keygrouping_app.partials import Partials
from keygrouping_app.scheduler import Failure


async def commit_without_refused(
    transactions: Transactions,
    what: OffsetAndMetadata,
    returned: Sequence[Returned],
    surplus: Sequence[Outgoing],
    states: list[Outgoing],
    partials: Partials | None,
    settings: Settings,
) -> tuple[OffsetAndMetadata | None, list[tuple[Returned, Failure]]]:
    """What was committed, and what was refused, of which dead letters are in the transaction instead.

    `partials`: has those of a key go as one, unless something is refused, when it has to be told whose it is.

    None for what was committed, if something refused has changed a state: nothing was. RefusedError if it is
    something else: of `surplus`, which goes to slots, or of states.
    """
    left, pieces, refused = list(returned), dict[str, int](), list[tuple[Returned, Failure]]()
    whole = partials is not None
    while True:
        sent = partials.together(records_in(left)) if partials is not None and whole else records_in(left)
        try:
            return await transactions.commit(what, [*sent, *surplus], states, pieces), refused
        except RefusedError as error:
            if overflow_of(settings.group) in error.topics or _blames(error, sent, partials):
                raise
            if whole:
                whole = False
                continue
            found, size = await blamed(transactions, [*sent, *surplus, *states], error)
            if not found:
                pieces |= dict.fromkeys(error.topics, size)
                continue
            if not (instead := instead_of(left, all_refused(sent, found), settings)):
                raise other_than_outputs(found, len(sent), len(surplus), error) from error
        refused += [(left[place], failure) for place, (failure, _) in instead.items()]
        if states and partials is None and any(not each.letters for each, _ in refused):
            return None, refused
        for place, (_, other) in instead.items():
            left[place] = other


def _blames(error: RefusedError, sent: Sequence[Outgoing], partials: Partials | None) -> bool:
    """Whether it is their topic that is refused, which is no event's fault."""
    return partials is not None and any(sent[each].topic == partials.topic for each in error.why if each < len(sent))
