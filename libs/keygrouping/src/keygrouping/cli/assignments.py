"""Settings given as `name=value`, for whichever part of a command has a setting of that name."""

from collections.abc import Mapping, Sequence

import orjson

from keygrouping.cli.faults import CommandError, Faults
from keygrouping.grouping import Description


def assign(assignments: Sequence[str], owners: Mapping[str, Sequence[Description]]) -> dict[str, dict[str, object]]:
    """The settings of each owner out of texts such as `z=1.2`, or `grouping.seed=3` to say which owner is meant.

    Raises CommandError with a line for each text without `=`, and each name that no owner has or that several have.
    """
    faults = Faults()
    given: dict[str, dict[str, object]] = {owner: {} for owner in owners}
    for assignment in assignments:
        with faults.held():
            name, equals, text = assignment.partition("=")
            if not equals:
                raise CommandError(f"--set {assignment}: must be name=value")
            owner, setting = _find(name, owners)
            given[owner][setting.name] = _value(text, setting.kind)
    faults.end()
    return given


def _find(name: str, owners: Mapping[str, Sequence[Description]]) -> tuple[str, Description]:
    meant = [
        (owner, setting)
        for owner, settings in owners.items()
        for setting in settings
        if name in (setting.name, f"{owner}.{setting.name}")
    ]
    if not meant:
        choices = "; ".join(
            f"{owner}: {', '.join(setting.name for setting in settings) or 'none'}"
            for owner, settings in owners.items()
        )
        raise CommandError(f"--set {name}: unknown setting; choose from those of {choices}")
    if len(meant) > 1:
        choices = ", ".join(f"{owner}.{setting.name}" for owner, setting in meant)
        raise CommandError(f"--set {name}: several have this setting; choose from {choices}")
    return meant[0]


def _value(text: str, kind: str) -> object:
    """A text as what the setting wants; where it is no such thing, the setting's own check tells."""
    if kind.startswith("a text"):
        return None if text == "null" and kind.endswith("or null") else text
    if kind.startswith("a list") and not text.startswith("["):
        text = f"[{text}]"
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = text
    return value
