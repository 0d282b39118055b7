import pytest
from keygrouping_router.planning import rounds


@pytest.fixture(autouse=True)
def time_for_plans_inside_of_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their time is the machine's: an eighth of an interval were too short on one that is busy."""
    monkeypatch.setattr(rounds, "_INSIDE", 2.0)
