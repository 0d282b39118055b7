"""Your own function on your own topic: events of a key one after another, keys side by side.

app = App("billing")

@app.on("orders", concurrency=64)
async def charge(event: Event) -> None: ...
"""

from keygrouping_app.app import App
from keygrouping_app.breaker import Breaker
from keygrouping_app.codecs import BYTES, JSON, TEXT, Codec, Topic
from keygrouping_app.events import Event, Outgoing, Output, UndecodableError
from keygrouping_app.failures import Reject
from keygrouping_app.handlers import AppError, Retries
from keygrouping_app.scheduler import Failure
from keygrouping_app.state import State
from keygrouping_app.tested import Tested

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "App",
    "AppError",
    "Breaker",
    "Codec",
    "Event",
    "Failure",
    "Outgoing",
    "Output",
    "Reject",
    "Retries",
    "State",
    "Tested",
    "Topic",
    "UndecodableError",
]
