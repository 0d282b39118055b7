"""The pages that people read, and the blocks of code in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TAUGHT = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((DOCS / "tutorials").glob("*.md")),
    *sorted((DOCS / "howto").glob("*.md")),
    DOCS / "choosing.md",
    DOCS / "capacity.md",
    DOCS / "dashboards.md",
)
"""Pages of which every block of code is tried."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[str]:
        """The commands of a shell block, without comments, each on one line."""
        lines = self.text.replace("\\\n", " ").splitlines()
        stripped = (re.sub(r"\s+#\s.*$", "", line).strip() for line in lines)
        return [line for line in stripped if line and not line.startswith("#")]


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The blocks of a page in these languages (none: in all), in order."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        if not languages or found[1] in languages:
            yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


def all_blocks(*languages: str) -> list[Block]:
    """The blocks of all pages that teach."""
    return [block for page in TAUGHT for block in blocks(page, *languages)]


def shell_of_make(command: str) -> list[str]:
    """Executes a page's `make ...`, but nothing is installed: the tests take what is there."""
    return ["bash", "-c", re.sub(r"^make ", "exec make --old-file=install ", command)]


def outside_of_make() -> dict[str, str]:
    """The environment for a `make` of its own, when these tests were started by `make test ARGS=...`, too."""
    given = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARGS")
    return {name: value for name, value in os.environ.items() if name not in given}
