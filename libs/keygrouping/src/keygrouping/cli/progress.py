"""A progress bar on stderr, where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Bar = Callable[[int, int], None]
"""Is told how much is done, and of how much."""


@contextmanager
def progress_bar(title: str) -> Iterator[Bar]:
    """A bar that goes when the work is over; none where stderr is a file or a pipe."""
    if not sys.stderr.isatty():
        yield lambda done, total: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title, markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
