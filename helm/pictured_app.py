"""The app on the picture: pictured_app.py BROKERS PREFIX PORT DOWN. While the file DOWN exists, calls fail."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from keygrouping.app import App, Event, Reject

brokers, prefix, port, down = sys.argv[1:]
app = App(prefix, brokers=brokers, dead_letters=f"{prefix}-dead-letters", port=int(port))


@app.on(f"{prefix}-orders", concurrency=16)
async def charge(event: Event) -> None:
    """Calls a service that takes 20 ms; it refuses one order in 200, and is now and then too slow."""
    await asyncio.sleep(random.expovariate(1 / 0.02))
    if Path(down).exists() or random.random() < 0.01:  # noqa: ASYNC240 -- a file of this machine
        raise ConnectionError("the service is down")
    if event.offset % 200 == 0:
        raise Reject("no such account")


if __name__ == "__main__":
    app.run()
