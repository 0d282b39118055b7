"""A command of a page that installs from the repository names every package of the repository that it needs.

None of them is on an index, so pip would look in vain for one that is left out.
"""

from __future__ import annotations

import re
import tomllib

import pytest

from .pages import ROOT
from .test_links import PAGES

_COMMAND = re.compile(r"pip install ([^`#\n]*\./[^`#\n]*)")
_FOLDER = re.compile(r"\./([\w/-]+)(?:\[([\w,-]+)\])?")
_NAME = re.compile(r"([\w-]+)(?:\[([\w,-]+)\])?")
COMMANDS = [(str(page.relative_to(ROOT)), command) for page in PAGES for command in _COMMAND.findall(page.read_text())]


def project(folder: str) -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return found


NAMES = {str(project(str(path.parent.relative_to(ROOT)))["name"]) for path in ROOT.glob("*/*/pyproject.toml")}


def lacking(command: str) -> set[str]:
    """The packages of the repository that what the command names requires, and that it does not name."""
    named, required = set(), set()
    for folder, extras in _FOLDER.findall(command):
        its = project(folder)
        named.add(str(its["name"]))
        optional = its.get("optional-dependencies", {})
        wanted = [*its["dependencies"], *(one for extra in extras.split(",") if extra for one in optional[extra])]  # type: ignore[misc, index]
        required |= {_NAME.match(one)[1] for one in wanted}  # type: ignore[index]
    return (required & NAMES) - named


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_names_all_packages_of_the_repository_that_it_needs(page: str, command: str) -> None:
    assert not lacking(command), page


def test_what_a_command_lacks_is_found() -> None:
    assert {page for page, _ in COMMANDS} > {"docs/howto/pyspark.md", "libs/pyspark/README.md", "docs/app.md"}
    assert lacking("./libs/keygrouping[pyspark]") == {"keygrouping-pyspark"}
    assert lacking("./libs/app") == {"keygrouping-kafka"}
    assert lacking("'./libs/app[cli]'") == {"keygrouping", "keygrouping-kafka"}
