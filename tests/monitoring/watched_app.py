"""An app that does what the values of its events say: watched_app.py BROKERS PREFIX PORT FOLDER.

While FOLDER has a file `down`, what its handler needs is down.
"""

import asyncio
import os
import sys
from pathlib import Path

from keygrouping.app import BYTES, App, Event, Reject, State, Topic

brokers, prefix, port, folder = sys.argv[1:]
down = Path(folder) / "down"
app = App(f"{prefix}-app", brokers=brokers, dead_letters=f"{prefix}-dead", port=int(port), session_timeout=20)


@app.on(Topic(f"{prefix}-orders", value=BYTES), concurrency=4, timeout=3600, retries=0)
async def charge(event: Event) -> None:
    """Its seconds, if it is a number."""
    if down.exists():
        raise ConnectionError("down")
    if event.value == b"reject":
        raise Reject("closed")
    if event.value:
        await asyncio.sleep(float(event.value))


@app.on(Topic(f"{prefix}-pictures", value=BYTES), processes=2, retries=0)
def shrink(event: Event) -> None:
    """A picture that kills its process."""
    if event.value == b"die":
        os._exit(1)


@app.on(Topic(f"{prefix}-payments", value=BYTES), state=State(dict, moves="mixed"), timeout=3600)
async def book(event: Event, account: dict[str, int]) -> None:
    """Its seconds, if it is a number; the state changes each time."""
    account["events"] = account.get("events", 0) + 1
    if event.value:
        await asyncio.sleep(float(event.value))


@app.on(Topic(f"{prefix}-clicks", value=BYTES), concurrency=4, split=True)
async def score(_: Event) -> None:
    """It takes a tenth of a second, whatever it is."""
    await asyncio.sleep(0.1)


if __name__ == "__main__":
    app.run()
