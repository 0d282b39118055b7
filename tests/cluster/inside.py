"""What the cluster's tests do inside of it: sent to a pod of the load generators' image, and run there.

`python inside.py COMMAND ARGUMENT...` prints one JSON value. The oracle comes along as source.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TIMEOUT = 10
_PROGRAM = b"bin/keygrouping-load"
_FLUSH_KEYS = 40
_FLUSH_SECONDS = 2.0


def ask(method: str, url: str, body: str = "", media: str = "application/json") -> Any:
    """Status and JSON body of an answer; status 0 if there is none."""
    content = body.encode() or None
    token = os.environ.get("PRODUCER_TOKEN" if "-producer" in url else "ROUTER_TOKEN", "")
    headers = {"Content-Type": media, **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(url, content, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            return {"status": answer.status, "body": _json(answer.read())}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "body": _json(error.read())}
    except OSError as error:
        return {"status": 0, "body": str(error)}


def watch(url: str, seconds: str) -> Any:
    """How many events the router had routed, repeatedly: pairs of seconds and events (null: no answer)."""
    begin, samples = time.monotonic(), []
    while (passed := time.monotonic() - begin) < float(seconds):
        answer = ask("GET", f"{url}/keyspace?limit=1")
        samples.append((passed, answer["body"]["events"] if answer["status"] == 200 else None))
        time.sleep(0.25)
    return samples


def stop() -> Any:
    """Ends the load generators that run in here; gives how many there were."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _PROGRAM in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGTERM)
                found += 1
    return found


def check(producer: str, seconds: str) -> Any:
    """Compares all windows that are over with the oracle, until they are equal or so many seconds have passed.

    Events of keys that nobody else uses are sent meanwhile: windows become final when later events come.
    """
    return asyncio.run(_check(producer, float(seconds)))


async def _check(producer: str, seconds: float) -> Any:
    from keygrouping_local.comparison import Comparison
    from keygrouping_service.settings import JobSettings

    settings = JobSettings()
    begin = time.monotonic()
    until = settings.job.window_of(int(time.time() * 1000))
    comparison = Comparison()
    while time.monotonic() < begin + seconds:
        lines = (json.dumps({"key": f"flush-{n}", "value": {}}) for n in range(_FLUSH_KEYS))
        await asyncio.to_thread(ask, "POST", f"{producer}/events", "\n".join(lines), "application/x-ndjson")
        comparison = await _compare(settings, until)
        if comparison.equal:
            break
        await asyncio.sleep(_FLUSH_SECONDS)
    return {
        "equal": comparison.equal,
        "seconds": time.monotonic() - begin,
        "rows": [vars(row) for row in comparison.rows],
        "examples": comparison.examples,
    }


async def _compare(settings: Any, until: int) -> Any:
    from keygrouping_local.comparison import compare, compare_left_out
    from keygrouping_local.oracle import expect
    from keygrouping_local.records import read_results, reasons

    expected = await expect(settings, settings.job)
    for kept in (expected.windows, expected.events):
        for place in [place for place in kept if place[1] >= until]:
            del kept[place]
    found = {place: result for place, result in (await read_results(settings)).items() if place[1] < until}
    comparison = compare(expected, found)
    late, dead = await reasons(settings, settings.late_topic), await reasons(settings, settings.dead_letters_topic)
    compare_left_out(expected, late, dead, comparison)
    return comparison


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    commands: dict[str, Callable[..., Any]] = {"ask": ask, "watch": watch, "stop": stop, "check": check}
    sys.stdout.write(json.dumps(commands[command](*arguments)) + "\n")
