"""What was to be shown, what was measured, and whether that is enough."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One line of the table."""

    what: str
    target: str
    measured: str
    passed: bool | None
    """None: told, not judged."""


class Table:
    """Rows in the order in which they were measured."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def tell(self, what: str, measured: str) -> None:
        """Adds something that has no target."""
        self.rows.append(Row(what, "", measured, None))

    def judge(self, what: str, target: str, measured: str, passed: bool) -> None:
        """Adds a row; AssertionError if it has not passed."""
        self.rows.append(Row(what, target, measured, passed))
        assert passed, f"{what}: {measured}, the target is {target}"

    def text(self) -> str:
        """The table in columns."""
        marks = {True: "pass", False: "FAIL", None: ""}
        lines = [("what", "target", "measured", ""), *((*row[:3], marks[row.passed]) for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(4)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
