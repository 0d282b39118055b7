"""Groupings of other packages are found by their entry points."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from keygrouping.grouping import GroupingError, create, describe, names, registry

Install = Callable[[str], None]

MODULE = """
from keygrouping.grouping.key import Key

class Mine(Key):
    name = "mine"

not_a_class = Key(2)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with these entry points, as pip does."""

    def made(points: str) -> None:
        (tmp_path / "plugged_in.py").write_text(MODULE)
        info = tmp_path / "plugged_in-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-in\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[keygrouping.groupings]\n{points}\n")
        monkeypatch.syspath_prepend(tmp_path)
        registry._plugins.cache_clear()

    yield made
    monkeypatch.undo()
    registry._plugins.cache_clear()


def test_it_is_there_by_its_name(install: Install) -> None:
    install("mine = plugged_in:Mine")
    assert names()[-1] == "mine"
    assert create("mine", 3).route("a") == create("key", 3).route("a")
    assert describe("mine") == describe("key")


def test_a_name_that_is_taken_stays_what_it_is(install: Install) -> None:
    install("pkg = plugged_in:Mine")
    assert len(set(names())) == len(names())
    assert create("pkg", 3).name == "pkg"


@pytest.mark.parametrize("value", ["plugged_in:Other", "nowhere:Mine", "plugged_in:not_a_class"])
def test_what_can_not_be_used_is_told_in_a_line(install: Install, value: str) -> None:
    install(f"mine = {value}")
    with pytest.raises(GroupingError, match=f"^grouping 'mine': {value} ") as error:
        create("mine", 3)
    assert "\n" not in str(error.value)


def test_an_unknown_name_lists_it_as_well(install: Install) -> None:
    install("mine = plugged_in:Mine")
    with pytest.raises(GroupingError, match="level-fill, mine"):
        create("nope", 3)
