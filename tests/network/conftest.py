"""Options of the network suite: which schedules, how many, of which runner."""

from __future__ import annotations

import pytest

from .say import Say
from .world import RUNNERS


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of `make test-network ARGS="..."`."""
    group = parser.getgroup("network")
    group.addoption("--seed", type=int, help="the first schedule's seed; default: the next one after the last recorded")
    group.addoption("--schedules", type=int, default=None, help="how many schedules; default: 20, or 1 with --seed")
    group.addoption("--faults", type=int, default=5, help="faults of each schedule")
    group.addoption("--runner", choices=RUNNERS, default="native", help="what is struck")
    group.addoption("--kills", type=int, default=300, help="kills of the soak test")


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Say:
    """Prints at once, although pytest captures output."""

    def tell(what: object) -> None:
        with capfd.disabled():
            print(what, flush=True)  # noqa: T201

    return tell
