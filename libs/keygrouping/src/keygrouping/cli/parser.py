"""Arguments whose faults are told all at once, each in one line."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from keygrouping.printable import printable

INSTALL = "in the repository's folder, pip install './libs/keygrouping[cli]'"
"""How to get what is missing, together with the command's own extra."""
LAST_PORT = 65_535


class OneLineParser(argparse.ArgumentParser):
    """Tells all faults, each in one line instead of the whole usage, and takes no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self._faults: list[str] = []

    def error(self, message: str) -> NoReturn:
        """Ends the process with 2, and this as the last of the faults."""
        self._faults.append(message)
        self._end()

    def refuse(self, faults: Iterable[object]) -> NoReturn:
        """Ends the process with 2 and a line for each of these."""
        self._faults += map(str, faults)
        self._end()

    def _end(self) -> NoReturn:
        self.exit(2, "".join(f"{self.prog}: {printable(fault)}\n" for fault in self._faults))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As it is, but that nobody takes what is not known: it is one more fault, beside those of values."""
        given, unknown = super().parse_known_args(args, namespace)
        if unknown:
            # What follows an unknown option may be its value.
            named = [argument for argument in unknown if argument.startswith("-")] or unknown
            usage = " ".join(self.format_usage().split())
            self._faults.append(f"unknown argument {', '.join(map(repr, named))}; {usage}")
        if self._faults:
            self._end()
        return given, []

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """What an argument is given; a fault of it is kept, so that those of the others are found, too.

        Argparse ends at the first one, and has no public place to change that.
        """
        try:
            return super()._get_values(action, arg_strings)
        except argparse.ArgumentError as error:
            if action.nargs == argparse.PARSER:
                raise
            self._faults.append(str(error))
            return action.default


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """A type of arguments: integers from `least` on, up to `most`."""
    wanted = f"at least {least}" if most is None else f"from {least} to {most}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"must be an integer, {wanted}, not {text!r}")
        return number

    return parse
