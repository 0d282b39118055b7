"""Selections out of measured rows."""

from collections.abc import Sequence

from keygrouping_experiments.model import Cell, Line, Row


def values(rows: Sequence[Row], column: str, **where: Cell) -> tuple[float, ...]:
    """The numbers of a column in the rows that have these cells, in their order."""
    chosen = (row for row in rows if all(row[name] == cell for name, cell in where.items()))
    return tuple(float(row[column]) for row in chosen)


def value(rows: Sequence[Row], column: str, **where: Cell) -> float:
    """The number of a column in the one row that has these cells; ValueError if there is not just one."""
    (found,) = values(rows, column, **where)
    return found


def line(rows: Sequence[Row], label: str, x: str, y: str, **where: Cell) -> Line:
    """A curve of one column over another in the rows that have these cells."""
    return Line(label, values(rows, x, **where), values(rows, y, **where))
