"""The site builds strictly, from the same pages that are read in the repository, and fetches nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pages import ROOT

_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]* src=\"?(?:https?:)?//[^>]*>|<link(?![^>]*canonical)[^>]*https?://"
)
_ADDRESS = re.compile(r"url\((?:https?:)?//|@import[^;]*https?://")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_it_builds_without_a_warning_and_has_every_page(site: Path) -> None:
    written = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    wanted = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert wanted | {"index", "changelog", "contributing", "reference/chart"} <= written


def test_reading_it_fetches_nothing_from_elsewhere(site: Path) -> None:
    assert list(fetched(site)) == []


def test_every_public_name_of_the_library_is_listed(site: Path) -> None:
    from keygrouping import grouping

    page = (site / "reference" / "python.html").read_text()
    assert {name for name in grouping.__all__ if f'id="keygrouping.grouping.{name}"' not in page} <= {"Description"}


@pytest.mark.parametrize(
    ("page", "link", "moved"),
    [
        ("index.md", "[a](docs/concepts.md#the-words)", "[a](concepts.md#the-words)"),
        ("index.md", "![a](docs/images/page.png)", "![a](images/page.png)"),
        ("capacity.md", "[a](../helm/keygrouping/README.md#values)", "[a](reference/chart.md#values)"),
        ("howto/library.md", "[a](../../libs/keygrouping/README.md)", "[a](../reference/library.md)"),
        ("reference/library.md", "[a](../../docs/level-fill.md)", "[a](../level-fill.md)"),
        ("contributing.md", "[the license](LICENSE)", "the license (`LICENSE`)"),
        ("api.md", "[a](#keys) [b](https://example.com)", "[a](#keys) [b](https://example.com)"),
        ("reference/chart.md", "![Version: 1](https://example.com/badge)", "Version: 1"),
        ("api.md", "```sh\n[a](../LICENSE)\n```", "```sh\n[a](../LICENSE)\n```"),
    ],
)
def test_links_lead_from_the_place_on_the_site(page: str, link: str, moved: str) -> None:
    spec = importlib.util.spec_from_file_location("repository_pages", ROOT / "docs/site/repository_pages.py")
    assert spec and spec.loader
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    assert hook.moved_links(link, page) == moved


def fetched(site: Path) -> Iterator[str]:
    """What pages and style sheets ask other hosts for."""
    for path in site.rglob("*.html"):
        yield from (f"{path.name}: {found}" for found in _FETCHED.findall(path.read_text()))
    for path in site.rglob("*.css"):
        yield from (f"{path.name}: {found}" for found in _ADDRESS.findall(path.read_text()))
