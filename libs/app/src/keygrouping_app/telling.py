"""What a running app answers at each path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import orjson
from prometheus_client import CONTENT_TYPE_LATEST

from keygrouping_app.kafka.moved import NotHereError
from keygrouping_app.metrics import Metrics
from keygrouping_app.moves import BusyError
from keygrouping_app.overview import as_json, states_of
from keygrouping_app.planning import JustBegunError, NotPlannedError
from keygrouping_app.serving import Answer, serving, text

if TYPE_CHECKING:
    from keygrouping_app.kafka.runner import Runner


_NOT_HERE = (
    "no input partition of this member has a state of this key that may be handed over: another member may have it, it "
    "may be as a new one, or its handler has no State(moves=...)"
)
_NOT_PLANNED = (
    "no handler that is meant has keys handed over by plan: declare State(moves='mixed'), or another grouping, and "
    "start the app again; GET /grouping tells what its handlers declare"
)
_PAGE = Path(__file__).with_name("page")
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}


def told(port: int, runner: Runner) -> AbstractContextManager[int]:
    """Serves on a port what the runner does, while it is entered."""
    metrics = Metrics(runner)

    def ready() -> Answer:
        if runner.joined:
            return text(HTTPStatus.OK, "the group has given this member its partitions")
        return text(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the group has not given this member its partitions yet, or does not answer it",
        )

    def keys() -> Answer:
        now, restoring = asyncio.get_running_loop().time(), runner.restoring.values()
        handlers = as_json(runner.lanes, runner.held, now, runner.sharing, runner.moving, restoring)
        found = {"app": runner.name, "ready": runner.joined, "handlers": handlers}
        return HTTPStatus.OK, "application/json", orjson.dumps(found)

    def state(key: bytes) -> Answer:
        found = states_of(key, runner.held, runner.lanes)
        if not found:
            return _missing(
                runner, "this member has no state of this key: another one may have it, or it is as a new one"
            )
        return HTTPStatus.OK, "application/json", orjson.dumps({"app": runner.name, "states": found})

    return serving(
        port,
        {
            "/healthz": lambda: text(HTTPStatus.OK, "ok"),
            "/readyz": ready,
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, metrics.text()),
            "/keys": keys,
            "/grouping": lambda: (HTTPStatus.OK, "application/json", _groupings(runner)),
            **_page(),
        },
        {"/state/": state},
        {"/grouping": partial(_chosen, runner)},
        {("/keys/", "/slot"): partial(_moved, runner)},
    )


_NO_JSON = msgspec.DecodeError, UnicodeDecodeError, RecursionError
"""The last one of lists within lists, thousands deep."""


class _Move(msgspec.Struct):
    """The body that has a key handed over."""

    slot: int | None
    topic: str | None = None


class _Choice(msgspec.Struct):
    """The body that chooses a grouping."""

    grouping: str
    topic: str | None = None


def _missing(runner: Runner, why: str) -> Answer:
    """Of a key that is not here, as far as it is known what is."""
    if runner.restoring:
        return text(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{len(runner.restoring)} partitions of this member wait for their states, and the key may be in one of "
            "them: ask again when they are restored, see /keys",
        )
    return text(HTTPStatus.NOT_FOUND, why)


def _moved(runner: Runner, key: bytes, body: bytes) -> Answer:
    """Has a key handed over, as the body says."""
    try:
        told = msgspec.json.decode(body, type=_Move)
    except _NO_JSON:
        wanted = 'give {"slot": NUMBER}, or {"slot": null} for home; with several handlers "topic": "NAME", too'
        return text(HTTPStatus.UNPROCESSABLE_ENTITY, wanted)
    try:
        found = runner.moving.move(key, told.slot, told.topic)
    except NotHereError:
        return _missing(runner, _NOT_HERE)
    except BusyError:
        return text(HTTPStatus.CONFLICT, "the key is on its way: ask again when it is there, see /keys")
    except ValueError as wrong:
        return text(HTTPStatus.UNPROCESSABLE_ENTITY, str(wrong))
    return HTTPStatus.ACCEPTED, "application/json", orjson.dumps({"slot": told.slot, "partitions": found})


def _chosen(runner: Runner, body: bytes) -> Answer:
    """Has a grouping plan from the next plan on, as the body says."""
    try:
        told = msgspec.json.decode(body, type=_Choice)
    except _NO_JSON:
        wanted = 'give {"grouping": "NAME"}; of several handlers it is for all that plan, or for one by "topic": "NAME"'
        return text(HTTPStatus.UNPROCESSABLE_ENTITY, wanted)
    try:
        runner.moving.choose(told.grouping, told.topic)
    except NotPlannedError:
        return text(HTTPStatus.NOT_FOUND, _NOT_PLANNED)
    except JustBegunError:
        return text(HTTPStatus.CONFLICT, "the member has just begun to listen to the others: ask again in some seconds")
    except ValueError as wrong:
        return text(HTTPStatus.UNPROCESSABLE_ENTITY, str(wrong))
    return HTTPStatus.ACCEPTED, "application/json", _groupings(runner)


def _groupings(runner: Runner) -> bytes:
    """What plans now, of each handler whose keys move, and what was declared."""
    declared = runner.moving.declared
    found = [
        {"topic": topic, "grouping": grouping, "declared": declared[topic]}
        for topic, grouping in runner.moving.groupings.items()
    ]
    return orjson.dumps({"app": runner.name, "groupings": found})


def _page() -> dict[str, Callable[[], Answer]]:
    return {path: partial(_file, kind, (_PAGE / name).read_bytes()) for path, (name, kind) in _FILES.items()}


def _file(kind: str, body: bytes) -> Answer:
    return HTTPStatus.OK, kind, body
