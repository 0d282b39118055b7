"""What is wrong with a command's arguments, told all at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from keygrouping.grouping import GroupingError
from keygrouping.inspection.batch import InspectionError
from keygrouping.settings import SettingsError
from keygrouping.workload.stream import WorkloadError


class CommandError(ValueError):
    """Arguments that can't be used; `args` has a line for each fault, which names the choices."""


FAULTS = (CommandError, GroupingError, InspectionError, SettingsError, WorkloadError)
"""What is raised where arguments can't be used."""


class Faults:
    """Collects what is wrong with arguments, to tell all of it at once."""

    def __init__(self, *told: type[Exception]) -> None:
        """Those of `told` are faults of arguments, too."""
        self._told: tuple[type[Exception], ...] = (*FAULTS, *told)
        self._found: list[str] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is done here may fail: what comes of it is used after `end` alone."""
        try:
            yield
        except self._told as error:
            self._found += error.args if isinstance(error, CommandError) else [str(error)]

    def end(self) -> None:
        """Raises CommandError with all faults that were found."""
        if self._found:
            raise CommandError(*self._found)
