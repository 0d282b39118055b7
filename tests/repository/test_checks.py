"""The repository's own checks of `make lint` find what they are for, and keep to what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKED = ("libs", "services", "spark-jobs", "load-generators", "experiments", "benchmarks", "helm", "docs", "tests")


def run(check: str, folder: Path) -> tuple[int, list[str]]:
    """The exit code of a check, and its lines."""
    done = subprocess.run([sys.executable, ROOT / ".ci" / check, folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.splitlines()


def written(folder: Path, **files: str) -> None:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_a_replaced_term_is_found_wherever_it_stands(tmp_path: Path) -> None:
    words = '[replaced]\n"former(s)?" = "latter"\n'
    written(tmp_path, _dot_ci__words_dot_toml=words, page_dot_md="one\nFormers are gone\n", data_dot_csv="former")
    written(tmp_path, code_dot_py="is_former_name = 1\n", page_dot_js="theFormer()\nreformer()\n")
    assert run("words.py", tmp_path) == (
        1,
        [
            'code.py:1: "former": say latter',
            'page.js:1: "former": say latter',
            'page.md:2: "formers": say latter',
        ],
    )


def test_history_and_the_list_itself_may_name_them(tmp_path: Path) -> None:
    written(tmp_path, _dot_ci__words_dot_toml='[replaced]\n"former" = "latter"\n', CHANGELOG_dot_md="former\n")
    written(tmp_path, _dot_venv__page_dot_md="former\n", page_dot_md="informer\n")
    assert run("words.py", tmp_path) == (0, [])


INSIDE = """
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.consumer import fetcher
from aiokafka.record.memory_records import _MemoryRecordsPy
fetcher.MemoryRecords = _MemoryRecordsPy
class Own(AIOKafkaProducer):
    def fail(self):
        self._own = self._sender.client
        return self._own, self._batches
    def _batches(self): ...
"""


def test_what_reaches_into_aiokafka_is_found_outside_of_the_one_file(tmp_path: Path) -> None:
    adapter = "libs/service/src/keygrouping_service/records/aiokafka_adapter.py"
    written(tmp_path, services__one_dot_py=INSIDE, libs__fine_dot_py="from aiokafka import AIOKafkaProducer\n")
    (tmp_path / adapter).parent.mkdir(parents=True)
    (tmp_path / adapter).write_text(INSIDE)
    code, lines = run("aiokafka_inside.py", tmp_path)
    assert code == 1
    assert [line.removesuffix(f": {adapter} has what is needed") for line in lines] == [
        "services/one.py:2: ConsumerRecord",
        "services/one.py:4: _MemoryRecordsPy",
        "services/one.py:5: fetcher.MemoryRecords is replaced",
        "services/one.py:8: _sender",
    ]


SETTINGS = '[tool.vulture]\npaths = ["src"]\nignore_decorators = ["@*.get"]\nignore_names = ["on_*"]\n'
USED = """
from dataclasses import dataclass
TABLE = {"a": "module:LookedUp", "b": "ALSO_LOOKED_UP"}
class LookedUp:
    ALSO_LOOKED_UP = 1
@app.get("/")
def route(): ...
def on_event(): ...
@dataclass
class Answer:
    field: int
print(TABLE, Answer)
"""


def test_what_is_looked_up_or_called_by_a_framework_is_not_dead(tmp_path: Path) -> None:
    written(tmp_path, pyproject_dot_toml=SETTINGS, src__used_dot_py=USED)
    assert run("dead_code.py", tmp_path) == (0, [])


def test_what_nothing_uses_is_dead(tmp_path: Path) -> None:
    dead = "def unused(): ...\nclass Other:\n    def method(self): ...\nGONE = 1\n_GONE = 1\n_USED = 2\nprint(_USED)\n"
    written(tmp_path, pyproject_dot_toml=SETTINGS, src__used_dot_py=USED, src__dead_dot_py=dead)
    assert run("dead_code.py", tmp_path) == (
        1,
        [
            "src/dead.py:1: unused function 'unused'",
            "src/dead.py:2: unused class 'Other'",
            "src/dead.py:3: unused method 'method'",
            "src/dead.py:4: unused variable 'GONE'",
            "src/dead.py:5: unused variable '_GONE'",
        ],
    )


def test_an_exception_to_a_limit_says_why() -> None:
    """Complexity, arguments and length of functions have limits (`[tool.ruff.lint]`)."""
    exception = re.compile(r"# noqa: .*(?:C901|PLR09\d\d)(?P<reason>.*)")
    files = [file for folder in CHECKED for file in (ROOT / folder).rglob("*.py")]
    found = [match for file in files for match in exception.finditer(file.read_text()) if file != Path(__file__)]
    assert found
    assert all(re.match(r" -- \w+", match["reason"]) for match in found), found
