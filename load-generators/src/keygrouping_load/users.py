"""Users of the HTTP interfaces, for locust: it takes all classes in here that its command line names.

Importing locust changes how Python's sockets and threads work, so nothing but locust imports this module.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from random import choice
from typing import Any

import gevent
from keygrouping_service.settings import load
from locust import FastHttpUser, constant, constant_throughput, events, task
from locust.env import Environment

from keygrouping_load.settings import HttpLoadSettings
from keygrouping_load.stream import events_of

_SETTINGS = load(HttpLoadSettings)
_WORKLOAD_EVENTS = 100_000


def _pause() -> Any:
    rate = _SETTINGS.rate / _SETTINGS.users
    return constant_throughput(rate) if rate else constant(0)


def _keys() -> Iterator[str]:
    """Keys of the workload, repeated for ever."""
    while True:
        for event in events_of(_SETTINGS.open_workload(_WORKLOAD_EVENTS), 1, 0, 1):
            yield event.key.decode(errors="backslashreplace")


def _begin_now(**_: Any) -> None:
    """gevent's clock stood still while modules were loaded: the run's end would come that much too early."""
    gevent.get_hub().loop.update_now()


def _require_requests(environment: Environment, **_: Any) -> None:
    """A load without requests is none: locust itself would call it a success."""
    if not environment.stats.total.num_requests:
        why = f"no request came to an end within {_SETTINGS.seconds} s: make it longer, or see what does not answer"
        sys.stderr.write(f"fatal: {why}\n")
        environment.process_exit_code = 1


events.init.add_listener(_begin_now)  # type: ignore[no-untyped-call]
events.quitting.add_listener(_require_requests)  # type: ignore[no-untyped-call]


class ApiReader(FastHttpUser):
    """Reads what people and dashboards read from the router."""

    host = _SETTINGS.router_url
    wait_time = _pause()

    def on_start(self) -> None:
        """Begins without knowing any key."""
        self._ids: list[str] = []

    @task(4)
    def keyspace(self) -> None:
        """The KeySpace, and with it keys to ask for."""
        with self.client.get("/keyspace", headers=_SETTINGS.headers(), catch_response=True) as response:
            if response.status_code == 200:
                self._ids = [key["id"] for key in response.json()["keys"]]

    @task(4)
    def key(self) -> None:
        """One of the keys that the KeySpace has named."""
        if self._ids:
            self.client.get(f"/keyspace/{choice(self._ids)}", name="/keyspace/{key}", headers=_SETTINGS.headers())

    @task(2)
    def workers(self) -> None:
        """The workers."""
        self.client.get("/workers", headers=_SETTINGS.headers())

    @task(1)
    def plan(self) -> None:
        """The plan in force."""
        self.client.get("/plan", headers=_SETTINGS.headers())


class EventPoster(FastHttpUser):
    """Sends events to the producer."""

    host = _SETTINGS.producer_url
    wait_time = _pause()
    _keys = _keys()
    _sent = 0

    @task
    def events(self) -> None:
        """Several events in one request."""
        lines = (json.dumps({"key": next(self._keys), "value": {"weight": 1}}) for _ in range(_SETTINGS.post_events))
        self.client.post("/events", "\n".join(lines), headers=_SETTINGS.producer_headers())
