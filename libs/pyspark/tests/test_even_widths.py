"""How wide learned keys are: as narrow as even tasks let them be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_pyspark.widths import even_widths


def tasks_with(rows: list[int], homes: list[int], widths: list[int], total: int, tasks: int) -> list[float]:
    """The rows of each task: a key's parts on as many tasks from its home on, and all other rows everywhere."""
    return [
        (total - sum(rows)) / tasks
        + sum(
            each / width
            for each, home, width in zip(rows, homes, widths, strict=True)
            if task in {(home + part) % tasks for part in range(width)}
        )
        for task in range(tasks)
    ]


KEYS = st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 999)), max_size=20)


@given(KEYS, st.integers(0, 50_000), st.integers(1, 40))
def test_no_task_has_much_more_than_its_share_unless_no_key_can_be_split_any_more(
    keys: list[tuple[int, int]], others: int, tasks: int
) -> None:
    rows, homes = [each for each, _ in keys], [home % tasks for _, home in keys]
    total = sum(rows) + others
    widths = even_widths(rows, homes, total, tasks)
    assert all(1 <= width <= tasks for width in widths)
    loads = tasks_with(rows, homes, widths, total, tasks)
    fullest = loads.index(max(loads))
    fair = total / tasks
    small = [
        width == tasks or each / width <= 0.02 * fair * 1.0001
        for each, home, width in zip(rows, homes, widths, strict=True)
        if (fullest - home) % tasks < width
    ]
    assert max(loads) <= 1.0501 * fair or all(small)


@pytest.mark.parametrize(("tasks", "most"), [(8, 1.0501), (24, 1.0501), (200, 1.15)])
@pytest.mark.parametrize("seed", range(5))
def test_keys_by_zipf_are_even_with_a_sixth_of_the_parts_that_all_on_every_task_would_have(
    tasks: int, most: float, seed: int
) -> None:
    shares = np.arange(1, 1001) ** -1.2
    rows = (1_000_000 * shares / shares.sum()).astype(int)
    hot = rows[rows * tasks > 0.02 * rows.sum()][:256].tolist()
    homes = np.random.default_rng(seed).integers(tasks, size=len(hot)).tolist()
    widths = even_widths(hot, homes, int(rows.sum()), tasks)
    loads = tasks_with(hot, homes, widths, int(rows.sum()), tasks)
    assert max(loads) <= most * rows.sum() / tasks
    assert sum(widths) <= len(hot) * (1 + tasks / 6)


def test_keys_that_are_even_as_they_are_stay_whole() -> None:
    assert even_widths([100, 100, 100], [0, 1, 2], 300, 3) == [1, 1, 1]
    assert even_widths([100, 100, 100], [0, 0, 2], 300, 3) != [1, 1, 1]


def test_a_key_with_nearly_all_rows_has_a_part_on_nearly_every_task() -> None:
    assert even_widths([950_000], [3], 1_000_000, 8) == [8]
    assert even_widths([950_000], [3], 1_000_000, 200)[0] >= 190


def test_there_may_be_no_rows() -> None:
    assert even_widths([], [], 0, 8) == []
