"""Members of an app on their own, and events for them."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from keygrouping_local.ports import free_ports
from keygrouping_local.process import spawn, terminate
from keygrouping_service.testing import Cluster


class Members:
    """Members of `watched_app`, each on its port."""

    def __init__(self, servers: str, prefix: str, folder: Path) -> None:
        self._folder, self._given = folder, (servers, prefix)
        self.ports = free_ports(2)
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def go_down(self) -> None:
        """What the handler needs is down from now on."""
        (self._folder / "down").touch()

    def come_back(self) -> None:
        """It is there again."""
        (self._folder / "down").unlink()

    def start(self, number: int) -> None:
        program: list[str | Path] = [sys.executable, Path(__file__).with_name("watched_app.py"), *self._given]
        log = self._folder / f"member-{number}.log"
        self._running[number] = spawn([*program, str(self.ports[number]), str(self._folder)], log)

    def kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def order(self, number: int, key: str, slot: int) -> bool:
        """Has a key handed over; whether the member takes the order."""
        url, body = f"http://127.0.0.1:{self.ports[number]}/keys/{key}/slot", json.dumps({"slot": slot}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, method="PUT"), timeout=10) as answer:
                return bool(answer.status == HTTPStatus.ACCEPTED)
        except OSError:
            return False

    async def keep_moving(self, number: int, key: str) -> None:
        """Has a key go from slot to slot until it is cancelled."""
        for slot in itertools.cycle((0, 1)):
            await asyncio.to_thread(self.order, number, key, slot)
            await asyncio.sleep(0.5)

    def pid(self, number: int) -> int:
        return self._running[number].pid

    def end(self) -> None:
        for process in self._running.values():
            terminate(process, 20)
        self._running.clear()


async def keep_asking(cluster: Cluster, topic: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
    """Writes these every half second until it is cancelled."""
    while True:
        await cluster.write(topic, rows)
        await asyncio.sleep(0.5)
