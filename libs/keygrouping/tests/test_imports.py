"""The modules of the library import each other in one direction only."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import keygrouping

ROOT = Path(keygrouping.__file__).parent


def name_of(path: Path) -> str:
    return ".".join(("keygrouping", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {name_of(path): path for path in ROOT.rglob("*.py")}


def imported(path: Path) -> Iterator[str]:
    """What a module imports at its beginning or later."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in MODULES else node.module for name in names)


def test_there_are_no_circles() -> None:
    graph = {name: {module for module in imported(path) if module in MODULES} for name, path in MODULES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)
