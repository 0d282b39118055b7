"""Remembers which application name a run has, so that it goes on where it stopped and runs never mix."""

import json
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Turn:
    """A run's application, and the finished one before it, whose topics are of no more use."""

    application: str
    predecessor: str | None = None


class History:
    """Application names of runs, in a file.

    A live run has one name for ever. A run that ends by itself (`once`) gets a new one, unless the last one was
    interrupted.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def turn(self, identity: str, once: bool) -> Turn:
        """Returns the application of the run that starts now; `identity` says what it reads and computes."""
        if not once:
            return Turn(identity)
        known = self._read()
        last = known.get(identity)
        if last and not last["complete"]:
            return Turn(str(last["application"]))
        predecessor = str(last["application"]) if last else None
        now = int(time.time() * 1000)
        # The run before may have begun in the same millisecond.
        name = next(name for ms in (now, now + 1) if (name := f"{identity}-{ms:x}") != predecessor)
        turn = Turn(name, predecessor)
        self._write(known | {identity: {"application": turn.application, "complete": False}})
        return turn

    def complete(self, identity: str) -> None:
        """Notes that the last run of this identity has come to its end."""
        known = self._read()
        known[identity]["complete"] = True
        self._write(known)

    def _read(self) -> dict[str, dict[str, object]]:
        try:
            known: dict[str, dict[str, object]] = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        return known

    def _write(self, known: dict[str, dict[str, object]]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(known, indent=1))
        fresh.replace(self._file)
