"""A leader and its children: what each hears of the other, and that no child outlives its leader."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from keygrouping_service import children
from keygrouping_service.children import Children
from keygrouping_service.errors import Fatal
from keygrouping_service.testing import until

BY_THE_HELPER = """
import asyncio
import os
import sys
from pathlib import Path
from keygrouping_service import children

async def main():
    children.report(f"{sys.argv[1]} {os.getpid()}")
    async for line in await children.orders():
        children.report(line.decode().strip()[::-1])
    Path(sys.argv[2]).touch()

asyncio.run(main())
"""
OBEDIENT = """
import os, sys
from pathlib import Path
print(sys.argv[1], os.getpid(), flush=True)
for line in sys.stdin:
    print(line.strip()[::-1], flush=True)
Path(sys.argv[2]).touch()
"""
DEAF = "import os, sys, time\nsys.stdout.write(f'{os.getpid()}\\n')\nsys.stdout.flush()\nwhile True: time.sleep(60)"
LEADER = f"""
import asyncio
import sys
from keygrouping_service.children import Children

async def main():
    async with Children([("-c", {OBEDIENT!r}, "0", sys.argv[1])], 60) as child:
        sys.stdout.write(await child.report(0) + "\\n")
        sys.stdout.flush()
        await asyncio.Event().wait()

asyncio.run(main())
"""
GRACE = 60.0


def obedient(folder: Path, count: int, program: str = OBEDIENT) -> list[tuple[str, ...]]:
    return [("-c", program, str(number), str(folder / f"ended-{number}")) for number in range(count)]


async def pids_of(led: Children, count: int) -> list[int]:
    """They have all started."""
    told = [(await led.report(number)).split() for number in range(count)]
    assert [number for number, _ in told] == [str(number) for number in range(count)]
    return [int(pid) for _, pid in told]


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


async def test_all_hear_an_order_and_each_is_heard_by_itself(tmp_path: Path) -> None:
    async with Children(obedient(tmp_path, 2, BY_THE_HELPER), GRACE) as led:
        pids = await pids_of(led, 2)
        for line, answer in (("abc", "cba"), ("", ""), ("Ärger", "regrÄ")):
            led.order(line)
            assert [await led.report(number) for number in (1, 0)] == [answer, answer]
        assert all(os.getsid(pid) == pid for pid in pids), "a key of the terminal reaches the leader alone"
    assert all(map(gone, pids))
    assert all((tmp_path / f"ended-{number}").exists() for number in range(2)), "they ended in order"


async def test_one_that_does_not_stop_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    async with Children([("-c", DEAF)], 0.3) as led:
        pid = int(await led.report(0))
    assert gone(pid)
    assert "1 processes do not stop within 0.3 s and are killed" in caplog.text


async def test_what_can_not_all_be_started_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    start = children._start

    async def fails_at_the_second(command: Sequence[str]) -> Any:
        if started:
            raise OSError("no more processes")
        started.append(await start(command))
        return started[0]

    monkeypatch.setattr(children, "_start", fails_at_the_second)
    with pytest.raises(OSError, match="no more processes"):
        async with Children(obedient(tmp_path, 2), GRACE):
            pass
    assert started[0].returncode == 0


async def test_one_that_has_ended_is_told_by_its_number_and_takes_no_order(tmp_path: Path) -> None:
    async with Children([*obedient(tmp_path, 1), ("-c", "print('half a line', end='')")], GRACE) as led:
        with pytest.raises(Fatal, match=r"^process 2 of 2 \(-c .*\) has ended; its last lines stand above$"):
            await led.report(1)
        await led.report(0)
        led.order("on")
        led.order("go")
        assert [await led.report(0), await led.report(0)] == ["no", "og"]


async def test_a_line_without_end_is_no_line() -> None:
    endless = "import sys\ntry:\n    while True: sys.stdout.write('x' * 65536)\nexcept BrokenPipeError: pass"
    async with Children([("-c", endless)], 0) as led:
        with pytest.raises(Fatal, match="a line of more than 1048576 bytes"):
            await led.report(0)


async def test_a_leader_that_is_cancelled_leaves_no_child(tmp_path: Path) -> None:
    led = Children(obedient(tmp_path, 1), GRACE)
    pids: list[int] = []

    async def lead() -> None:
        async with led:
            pids.extend(await pids_of(led, 1))
            await asyncio.Event().wait()

    leading = asyncio.create_task(lead())
    await until(lambda: pids)
    leading.cancel()
    await asyncio.wait([leading])
    assert leading.cancelled() and gone(pids[0]) and (tmp_path / "ended-0").exists()


async def test_a_leader_that_is_killed_leaves_no_child(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    leader = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LEADER, str(ended)), stdout=asyncio.subprocess.PIPE
    )
    assert leader.stdout is not None
    pid = int((await leader.stdout.readline()).split()[1])
    leader.send_signal(signal.SIGKILL)
    await leader.wait()
    await until(lambda: ended.exists() and gone(pid))
