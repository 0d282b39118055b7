"""A leader and its child processes, which speak in lines over pipes: both sides of it.

What the leader orders comes on a child's standard input, what the child reports goes to its standard output. A child
whose input ends has lost its leader, however that ended, and stops by itself.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from keygrouping_service.errors import Fatal

log = logging.getLogger(__name__)

_LONGEST_LINE = 1 << 20


class Children:
    """Processes of this Python interpreter, one for each of the `commands`; an async context manager.

    Whatever ends it, their inputs end, too, and what still runs `grace` seconds later is killed. Each has a session of
    its own: an interrupt from the terminal reaches the leader alone, which ends them in order.
    """

    def __init__(self, commands: Sequence[Sequence[str]], grace: float) -> None:
        self._commands = commands
        self._grace = grace
        self._processes: list[Process] = []

    async def __aenter__(self) -> Self:
        try:
            for command in self._commands:
                self._processes.append(await _start(command))
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def order(self, line: str) -> None:
        """Gives each of them a line; one that has ended gets none."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{line}\n".encode())

    async def report(self, number: int) -> str:
        """The next line of one of them; `Fatal` if it has ended, or if the line is too long to be one."""
        process = self._processes[number]
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
        except ValueError:
            raise Fatal(f"{self._name(number)} writes a line of more than {_LONGEST_LINE} bytes") from None
        if not line.endswith(b"\n"):
            raise Fatal(f"{self._name(number)} has ended; its last lines stand above")
        return line.decode(errors="replace").removesuffix("\n")

    def _name(self, number: int) -> str:
        return f"process {number + 1} of {len(self._commands)} ({' '.join(self._commands[number][:2])})"

    async def _end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        ending = [asyncio.create_task(process.wait()) for process in self._processes]
        try:
            slow = (await asyncio.wait(ending, timeout=self._grace))[1] if ending else ()
            if slow:
                log.warning("%d processes do not stop within %g s and are killed", len(slow), self._grace)
        finally:
            for process in self._processes:
                if process.returncode is None:
                    process.kill()
        await asyncio.gather(*ending)


async def _start(command: Sequence[str]) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE, start_new_session=True
    )


async def orders() -> asyncio.StreamReader:
    """What the leader of this process orders, line by line; it ends with the leader. To be asked for once."""
    reader = asyncio.StreamReader(_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def report(line: str) -> None:
    """Tells the leader of this process a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
