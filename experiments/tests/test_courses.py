"""Level-fill keeps its promises on whole streams of several sources that share plans."""

import pytest
from keygrouping.grouping.level_fill import VARIANTS
from keygrouping.simulate import Deal, create_sources
from keygrouping.workload import workload
from keygrouping_experiments.level_run import run

INTERVAL = 20_000


def test_a_stationary_stream_gets_no_new_pairs() -> None:
    stream = workload("country-skew-80", 8 * INTERVAL, 1)
    course = run(stream, create_sources("level-fill", 10, 5), interval=INTERVAL, deal=Deal.ROUND_ROBIN)
    assert not course.new_pairs[4:].any() and course.lambdas.max() < 1.01
    assert course.costs[4:] == pytest.approx((204 + 9) / 204, abs=0.001)


@pytest.mark.parametrize("sizes", [(10, 20, 30, 50), (50, 30, 10)])
def test_balance_is_there_at_once(sizes: tuple[int, ...]) -> None:
    stream = workload("country-skew-80", 2 * len(sizes) * INTERVAL, 1)
    resizes = {2 * step: workers for step, workers in enumerate(sizes) if step}
    course = run(stream, create_sources("level-fill", sizes[0], 1), resizes, INTERVAL)
    assert course.lambdas.max() < 1.02


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_can_be_built_and_balances_a_hot_key(variant: str) -> None:
    course = run(
        workload("country-skew-40", 6 * INTERVAL, 1),
        create_sources("level-fill", 10, 2, VARIANTS[variant]),
        interval=INTERVAL,
        deal=Deal.ROUND_ROBIN,
    )
    assert course.lambdas[2:].max() < 1.02


def test_the_hot_key_that_changes_is_caught_inside_its_interval() -> None:
    stream = workload("moving-hot-key", 6 * INTERVAL, 1, {"share": 0.5, "interval": INTERVAL})
    course = run(stream, create_sources("level-fill", 10, 5), interval=INTERVAL, deal=Deal.ROUND_ROBIN)
    assert course.lambdas.max() < 1.05 and course.costs.max() < 1.02
