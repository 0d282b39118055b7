"""Makes pages of the site out of Markdown that lies elsewhere in the repository, and leads links to them there.

A page keeps the links that are right where it lies. A link to a file that is no page becomes that file's path, and a
picture on another host its text: nothing is fetched from elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "SECURITY.md": "security-policy.md",
    "helm/keygrouping/README.md": "reference/chart.md",
    "k8s/README.md": "reference/manifests.md",
    "libs/keygrouping/README.md": "reference/library.md",
}
"""Where a file of the repository is on the site."""

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"(^ *```.*?^ *```)", re.S | re.M)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Rewrites the links of a page for the place that it has on the site."""
    return moved_links(markdown, page.file.src_uri)


def moved_links(markdown: str, page: str) -> str:
    """A page's text with its links as they must be on the site; `page` is its path there."""
    origin = next((source for source, moved in PAGES.items() if moved == page), f"docs/{page}")

    def moved(link: re.Match[str]) -> str:
        target, _, anchor = link["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link["text"] if link["image"] else link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        there = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if there is None:
            return f"{link['text']} (`{path}`)" if link["text"].strip("`") != path else f"`{path}`"
        relative = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"{link['image']}[{link['text']}]({relative}{'#' + anchor if anchor else ''})"

    parts = _FENCE.split(markdown)
    return "".join(part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts))
