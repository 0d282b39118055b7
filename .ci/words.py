"""Keeps replaced terms out of names, messages and pages: `words.toml` has them, each with the field's word.

The changelog and the papers' own data may say what they like; this file and the list name the terms.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

_KINDS = {".css", ".gotmpl", ".html", ".js", ".md", ".py", ".sh", ".toml", ".tpl", ".txt", ".yaml", ".yml"}
_NOT_OURS = {".git", ".venv", ".tools", ".data", "__pycache__", "CHANGELOG.md", "words.toml", "words.py", "alice.txt"}
_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")
"""Where a name is taken apart."""


def found(root: Path, terms: dict[str, str]) -> Iterator[str]:
    """One line for each term in each place, with what to say instead."""
    patterns = {re.compile(rf"\b(?:{term})\b"): word for term, word in terms.items()}
    for file in _texts(root):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            words = _JOINT.sub(" ", line).lower()
            for pattern, word in patterns.items():
                if match := pattern.search(words):
                    yield f'{file.relative_to(root)}:{number}: "{match[0]}": say {word}'


def _texts(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _NOT_OURS or path.is_symlink():
            continue
        if path.is_dir():
            yield from _texts(path)
        elif path.suffix in _KINDS or path.name in ("Makefile", "Dockerfile", "run"):
            yield path


if __name__ == "__main__":
    root = Path(sys.argv[1])
    lines = list(found(root, tomllib.loads((root / ".ci" / "words.toml").read_text())["replaced"]))
    sys.stderr.writelines(f"{line}\n" for line in lines)
    sys.exit(bool(lines))
