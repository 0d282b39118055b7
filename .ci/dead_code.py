"""Names that nothing uses, as vulture finds them, anywhere in the repository.

Two uses that vulture can't see are added: a name in a text, "module:Name" or "NAME", by which registries, entry points
and enumerations are looked up, and a field of a model or dataclass, which whoever reads the JSON uses. What frameworks
call stands in `[tool.vulture]` of pyproject.toml.

Vulture looks at no variable whose name begins with an underscore; those of modules are looked at here.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from vulture import Vulture
from vulture.core import Item

_LOOKED_UP = re.compile(r'"(?:[\w.]+:(\w+)|([A-Z]+_[A-Z_]+))"')
_FIELD = re.compile(r"\s+\w+: ")


def unused(root: Path) -> Iterator[str]:
    """One line for each, sorted by file."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["vulture"]
    paths = [root / path for path in settings["paths"]]
    vulture = Vulture(ignore_names=settings["ignore_names"], ignore_decorators=settings["ignore_decorators"])
    vulture.scavenge(paths)
    vulture.scan("\n".join(sorted(_looked_up(paths))))
    for item in vulture.get_unused_code():
        if not _is_field(item):
            yield f"{item.filename.relative_to(root)}:{item.first_lineno}: {item.message}"
    for file in sorted(file for path in paths for file in path.rglob("*.py")):
        yield from (f"{file.relative_to(root)}:{line}: {message}" for line, message in _private(file.read_text()))


def _private(text: str) -> Iterator[tuple[int, str]]:
    """The module's own variables with an underscore that stand nowhere else in it."""
    tree = ast.parse(text)
    set_here = {
        target.id: node.lineno
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and re.match(r"_[^_]", target.id)
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
    yield from ((line, f"unused variable '{name}'") for name, line in set_here.items() if name not in used)


def _looked_up(paths: list[Path]) -> set[str]:
    files = [file for path in paths for kind in ("*.py", "pyproject.toml") for file in path.rglob(kind)]
    return {qualified or name for file in files for qualified, name in _LOOKED_UP.findall(file.read_text())}


def _is_field(item: Item) -> bool:
    line = item.filename.read_text().splitlines()[item.first_lineno - 1]
    return item.typ == "variable" and _FIELD.match(line) is not None


if __name__ == "__main__":
    found = list(unused(Path(sys.argv[1]).resolve()))
    sys.stderr.writelines(f"{line}\n" for line in found)
    sys.exit(bool(found))
