"""Laws of the checks before a run."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from keygrouping_local.checks import NEEDED_MEMORY, check_machine, check_memory
from keygrouping_local.errors import LocalError
from keygrouping_local.jars import default_jars_dir


def test_short_memory_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=NEEDED_MEMORY["spark"] - 1))
    check_memory("native")
    with pytest.raises(LocalError, match="use --runner native"):
        check_memory("spark")


@pytest.mark.parametrize(("runner", "embedded"), [("spark", False), ("native", True)])
def test_missing_jars_say_what_to_do(tmp_path: Path, runner: str, embedded: bool) -> None:
    with pytest.raises(LocalError, match="run `make install`"):
        check_machine(runner, embedded, tmp_path)


def test_missing_java_is_told_where_it_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(LocalError, match="Java is missing"):
        check_machine("native", True, default_jars_dir())
    check_machine("native", False, tmp_path)
