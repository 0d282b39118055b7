"""Arguments whose faults are told in one line."""

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

INSTALL = "in the repository's folder, pip install './libs/keygrouping[cli]'"
"""How to get what is missing, together with the command's own extra."""


class CommandError(ValueError):
    """Arguments that can't be used; one line that names the choices."""


class OneLineParser(argparse.ArgumentParser):
    """Tells a fault in one line instead of in the whole usage, and takes no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


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
