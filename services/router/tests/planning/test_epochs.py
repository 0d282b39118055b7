"""Laws of the numbers of plans, which the routers give and groupings know nothing of."""

import json

import pytest
from keygrouping.grouping import Planned, create, live_names, shared_settings
from keygrouping.hashing import hash_keys
from keygrouping_router.planning.plan import Contribution
from keygrouping_router.planning.rounds import next_epoch


def contributions(*epochs: int) -> list[Contribution]:
    return [Contribution(epoch, {}) for epoch in epochs]


@pytest.mark.parametrize(
    ("known", "epochs", "changed", "expected"),
    [
        (4, (4, 4), False, 4),
        (4, (4, 4), True, 5),
        (4, (3, 4), False, 4),
        (4, (4, 9), False, 10),
        (4, (4, 9), True, 10),
        (0, (), False, 0),
        (0, (), True, 1),
    ],
)
def test_a_plan_is_above_all_replicas_that_it_changes(
    known: int, epochs: tuple[int, ...], changed: bool, expected: int
) -> None:
    assert next_epoch(known, contributions(*epochs), changed=changed) == expected


@pytest.mark.parametrize("name", [name for name in live_names() if shared_settings(name) is not None])
def test_what_groupings_say_to_each_other_has_no_number(name: str) -> None:
    grouping = create(name, 4, shared_settings(name))
    assert isinstance(grouping, Planned)
    grouping.route_batch(hash_keys([b"key"] * 100 + [b"%d" % key for key in range(50)], grouping.seeds), None, 0.0)
    statistics = json.loads(json.dumps(grouping.statistics(1.0)))
    plan = grouping.plan([statistics])
    assert "epoch" not in statistics and "epoch" not in plan and isinstance(plan["changed"], bool)
    before = grouping.epoch
    grouping.apply(json.loads(json.dumps(plan)))
    assert grouping.epoch - before == plan["changed"]
