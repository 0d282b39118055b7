"""Every relative link of every page for people leads to something that is there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pages import DOCS, ROOT

PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / ".github").rglob("*.md"),
        ROOT / "helm/keygrouping/README.md",
        ROOT / "k8s/README.md",
        *ROOT.glob("libs/*/README.md"),
        *ROOT.glob("services/*/README.md"),
        ROOT / "spark-jobs/README.md",
        ROOT / "load-generators/README.md",
        ROOT / "experiments/README.md",
    }
)
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.S | re.M)
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.M)


def anchor_of(heading: str) -> str:
    """The anchor that a heading gets, on the site and on GitHub alike."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    kept = re.sub(r"[^\w\s-]", "", text.lower()).strip()
    return re.sub(r"\s", "-", kept)


def anchors(page: Path) -> set[str]:
    """The anchors of a page; the site joins hyphens and drops letters beyond ASCII, GitHub does neither."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.S | re.M)
    found = {anchor_of(heading) for heading in _HEADING.findall(text)}
    return found | {re.sub(r"-{2,}", "-", anchor) for anchor in found}


def broken_links(page: Path, text: str) -> Iterator[str]:
    """The relative links in a page's text that lead nowhere."""
    for groups in _LINK.findall(_CODE.sub("", text)):
        target, _, anchor = next(filter(None, groups)).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = Path(posixpath.normpath(page.parent / target)) if target else page
        if not path.exists():
            yield f"{target}: there is no such file"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            yield f"{target}#{anchor}: no heading has that anchor"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page, page.read_text())) == []


def test_broken_ones_are_found() -> None:
    page = DOCS / "concepts.md"
    text = (
        "[a](nowhere.md) [b](choosing.md#nothing) [c](#the-words) ![d](images/pipeline.svg) `[e](code)` [f](https://x)"
    )
    assert [fault.partition(":")[0] for fault in broken_links(page, text)] == ["nowhere.md", "choosing.md#nothing"]
