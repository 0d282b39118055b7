"""Properties are not judged by their speed: the first example may compile a kernel, and cores are shared."""

import math

import pytest
from hypothesis import settings
from keygrouping.cli import progress

settings.register_profile("keygrouping", deadline=None, max_examples=50)
settings.load_profile("keygrouping")


@pytest.fixture(autouse=True)
def no_lines_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: only tests of progress see some."""
    monkeypatch.setattr(progress, "EVERY_SECONDS", math.inf)
