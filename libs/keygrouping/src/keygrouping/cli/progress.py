"""Progress on stderr: a bar where that is a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from keygrouping.printable import printable

Bar = Callable[[int, int], None]
"""Is told how much is done, and of how much."""


EVERY_SECONDS = 5.0
"""Between two lines of progress."""


@contextmanager
def progress_bar(title: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Bar]:
    """A bar that goes when the work is over; where stderr is a file or a pipe, a line every `EVERY_SECONDS`."""
    if not sys.stderr.isatty():
        yield _lines(title, clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title, markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _lines(title: str, clock: Callable[[], float]) -> Bar:
    due = clock() + EVERY_SECONDS

    def tell(done: int, total: int) -> None:
        nonlocal due
        if total and clock() >= due:
            due = clock() + EVERY_SECONDS
            sys.stderr.write(f"{printable(title)}: {done / total:.0%}\n")
            sys.stderr.flush()

    return tell
