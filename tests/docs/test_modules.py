"""Every module that a page, the chart or a manifest runs or names is there."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from .pages import ROOT

_FILES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "services/Dockerfile")),
    *(path for folder in ("docs", "helm", "k8s") for path in sorted((ROOT / folder).rglob("*.*"))),
    *sorted((ROOT / "spark-jobs" / "image").iterdir()),
)
_WITH_TEXT = {"", ".md", ".yaml", ".tpl", ".txt", ".sh"}
_MODULE = re.compile(r"\bpython3? -m (keygrouping(?:_\w+)?(?:\.\w+)*)|[\"'](keygrouping_\w+(?:\.\w+)+)[\"']")


def named() -> dict[str, Path]:
    """The modules, each with a file that names it."""
    texts = {path: path.read_text() for path in _FILES if path.suffix in _WITH_TEXT and path.is_file()}
    return {run or quoted: path for path, text in texts.items() for run, quoted in _MODULE.findall(text)}


@pytest.mark.parametrize(("module", "file"), named().items(), ids=lambda it: it if isinstance(it, str) else "")
def test_it_is_there(module: str, file: Path) -> None:
    assert find_spec(module) is not None, f"{file.relative_to(ROOT)} names it"
