"""Keeps aiokafka's inside behind one file of the services, and two of apps: its ConsumerRecord, its private
members, and patches of its modules.

All else uses its public clients, so that another version, or another data path, is one file's concern. A member is
taken for private to aiokafka if its name begins with an underscore, its sources set it, and the file that reads it
defines nothing of the name. Tests that play aiokafka's part, or look whether it still is as it was, stand in `ALLOWED`.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ADAPTER = "libs/service/src/keygrouping_service/records/aiokafka_adapter.py"
ALLOWED = {
    ADAPTER,
    "libs/service/src/keygrouping_service/records/aiokafka_legacy.py",  # old formats; the adapter stands on its readers
    "libs/app/src/keygrouping_app/kafka/fetched.py",  # what is needed of it by an app, which has no services
    "libs/app/src/keygrouping_app/kafka/session.py",  # the same
    "libs/app/tests/test_fetched.py",  # the contract
    "libs/app/tests/test_sessions.py",  # plays its part, and members of ours are called alike
    "libs/service/tests/records/test_aiokafka_adapter.py",  # the contract
    "libs/service/tests/records/test_unpacking.py",
    "libs/service/tests/records/v2/test_v2.py",  # both read and write the same
    "libs/service/tests/kafka/test_transactions.py",  # the contract of transactions
    "libs/service/tests/kafka/test_positions.py",  # refuses requests
    "libs/service/tests/kafka/test_topic_ids.py",
    "libs/service/tests/test_plumbing.py",  # builds batches as a producer does
    "services/producer/tests/test_ingest_limits.py",
    "tests/network/faults.py",  # moves replicas
    "services/observer/tests/test_audit_work.py",  # members of ours that are called alike
    "services/producer/tests/test_filling.py",
}
FOLDERS = ("libs", "services", "spark-jobs", "load-generators", "experiments", "benchmarks", "tests")


def found(root: Path) -> Iterator[str]:
    """One line for each use outside of the adapter."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            name = file.relative_to(root).as_posix()
            text = file.read_text()
            if name not in ALLOWED and "aiokafka" in text:
                yield from (f"{name}:{line}: {what}: {ADAPTER} has what is needed" for line, what in uses(text))


def uses(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of each use of aiokafka's inside in a module."""
    tree = ast.parse(text)
    modules = set(_modules(tree))
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aiokafka":
            yield from ((node.lineno, alias.name) for alias in node.names if _is_inside(alias.name))
        elif isinstance(node, ast.Attribute):
            if _is_inside(node.attr) and (node.attr not in own or node.attr == "ConsumerRecord"):
                yield node.lineno, node.attr
            elif isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id in modules:
                yield node.lineno, f"{node.value.id}.{node.attr} is replaced"


def _is_inside(name: str) -> bool:
    return name == "ConsumerRecord" or name in private_members()


def _modules(tree: ast.AST) -> Iterator[str]:
    """The names under which a file has modules of aiokafka."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.asname or "aiokafka" for alias in node.names if alias.name.split(".")[0] == "aiokafka")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aiokafka":
            yield from (
                alias.asname or alias.name for alias in node.names if find_module(f"{node.module}.{alias.name}")
            )


@functools.cache
def find_module(name: str) -> bool:
    """Whether there is a module of this name."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@functools.cache
def private_members() -> frozenset[str]:
    """All names that begin with an underscore and that aiokafka's sources define or set."""
    spec = find_spec("aiokafka")
    assert spec is not None and spec.submodule_search_locations is not None
    names: set[str] = set()
    for file in Path(spec.submodule_search_locations[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
    return frozenset(name for name in names if name.startswith("_") and not name.startswith("__"))


if __name__ == "__main__":
    lines = list(found(Path(sys.argv[1]).resolve()))
    sys.stderr.writelines(f"{line}\n" for line in lines)
    sys.exit(bool(lines))
