"""Settings as options of a command: `--value-bytes 100` is the environment's `..._VALUE_BYTES=100`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from keygrouping.version import add_version
from keygrouping_service.settings import ServiceSettings, names_of


def take_options(command: str, settings_class: type[ServiceSettings], arguments: Sequence[str]) -> None:
    """Puts the options that are given into the environment, for this process and those that it starts."""
    parser = argparse.ArgumentParser(
        prog=f"keygrouping-load {command}", description=settings_class.__doc__, allow_abbrev=False
    )
    add_version(parser)
    for name, field in settings_class.model_fields.items():
        if "SecretStr" in str(field.annotation):
            continue  # Command lines can be read by everybody.
        variable = names_of(settings_class, name)[0]
        about = (field.description or name.replace("_", " ")).replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", dest=variable, metavar="VALUE", help=about)
    given = vars(parser.parse_args(arguments))
    os.environ.update({name: value for name, value in given.items() if value is not None})
