"""The command `keygrouping top`: what it shows of members that run, and of such that don't."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import orjson
import pytest
from keygrouping_app import App, Breaker, Event, members
from keygrouping_app import serving as module
from keygrouping_app.commands import top
from keygrouping_app.commands.top_view import page
from keygrouping_app.members import Answers, ask, groups_of
from keygrouping_app.serving import Answer, serving, text
from keygrouping_app.split import seconds, split_words
from keygrouping_app.telling import told
from keygrouping_service.testing import until
from rich.console import Console

from .fake_runner import running


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an answer may take longer than people wait for it."""
    for each in (members, module):
        monkeypatch.setattr(each, "_SECONDS", 60.0)


def part(**told: Any) -> dict[str, Any]:
    """What a member tells of a handler with one hot key."""
    key = {"key": "alice", "ordered": True, "needs": 120.0, "waiting": 900, "wait": 31.0, "for": "key", "ended": 90}
    return {
        "topic": "orders",
        "handler": "charge",
        "lanes": 16,
        "busy": 2,
        "breaker": "closed",
        "ended": 100,
        "retries": 4,
        "dead_letters": 1,
        "oldest_event_age": 32.5,
        "held_events": 901,
        "held_bytes": 9010,
        "gaps": {"0": 7, "3": 1200},
        "span": 60.0,
        "rate": 12.5,
        "load": {"seconds": 160.0, "hottest": 120.0},
        "keys": [key, {**key, "key": "bob", "needs": 40.0, "waiting": 0, "wait": 0.0, "for": None}],
    } | told


def shown(*parts: dict[str, Any], silent: dict[str, str] | None = None, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(page(Answers([{"app": "billing", "handlers": [each]} for each in parts], silent or {}), 10))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_members_share_is_shown_of_all() -> None:
    assert "given to others" not in shown(part())
    told = {"written": 1200, "slots": 1, "slot_seconds": 0.25, "imbalance": {"before": 5.4, "after": 1.0}}
    key = {**part()["keys"][0], "ordered": False}
    text = shown(part(sharing=told, keys=[key]), part(sharing={**told, "written": 34}, keys=[]))
    for words in ("given to others", "1,234", "load of slots", "500 ms", "5.40, 1.00", "alice"):
        assert words in text
    assert "200%" not in text


def test_keys_that_are_handed_over_are_shown_of_all() -> None:
    assert "handed over" not in shown(part())
    told = {"done": 3, "bytes": 4_000_000, "seconds": 0.3, "longest": 0.2, "away": 2, "under_way": 1, "held_events": 40}
    text = shown(part(moves={**told, "oldest": 1.5, "keys": []}), part(moves={**told, "oldest": 0.0, "keys": []}))
    for words in ("handed over", "6", "8.0 MB", "100 ms", "at slots", "4", "80", "1.5 s"):
        assert words in text


def test_the_latest_plan_that_a_member_knows_of_is_shown_with_the_work_of_all() -> None:
    told: dict[str, Any] = dict.fromkeys(("done", "bytes", "seconds", "longest", "away", "under_way", "held_events"), 1)
    told |= {"oldest": 0.0, "keys": []}
    old = {"plan": {"keys": 9, "age": 240.0}, "imbalance": {"before": 3.0, "after": 2.0, "now": 1.1}}
    new = {"plan": {"keys": 1200, "age": 12.04}, "imbalance": {"before": 1.942, "after": 1.05, "now": None}}
    begins = {"plan": None, "imbalance": {"before": None, "after": None, "now": None}}
    text = shown(*(part(moves=told | each) for each in (old, new, begins, {})))
    for words in ("last plan", "1,200 keys, 12.0 s ago", "λ before, planned, now", "1.94, 1.05, 1.10"):
        assert words in text
    assert "-, -, 1.10" in shown(part(moves=told | begins), part(moves=told | old | {"plan": None}))
    assert "λ" not in shown(part(moves=told | begins), part(moves=told))


def test_how_far_states_are_restored_is_shown_of_all() -> None:
    assert "restoring" not in shown(part(restoring=None))
    text = shown(part(restoring={"partitions": 2, "done": 40, "left": 10}), part(restoring=None))
    assert "restoring" in text
    assert "2, 80%" in text
    assert "100%" not in shown(part(restoring={"partitions": 2, "done": 0, "left": 0}))


def test_partitions_of_which_nothing_is_committed_are_shown() -> None:
    assert "not committed" not in shown(part(), part(refused={}))
    assert "not committed" in shown(part(), part(refused={"0": "no right"}))


def test_a_member_is_shown_with_its_hot_key() -> None:
    text = shown(part())
    for each in ("billing · 1 of 1 members", "orders · charge", "12.5", "2 of 16", "901", "32.5 s", "1,200", "closed"):
        assert each in text
    (alice,) = [line.split() for line in text.splitlines() if "alice" in line]
    assert alice == ["1", "alice", "900", "31.0", "s", "its", "call", "75.0%", "200%"]
    assert "The work of 60.0 s takes 2.0 min at least, which the hottest key needs alone." in text
    assert "Shared by all 16 lanes it takes 10.0 s, 12.0 times as fast." in text


def test_a_narrow_terminal_shows_all_of_it() -> None:
    text = shown(part(), width=80)
    for each in ("its call", "31.0 s", "oldest wait", "of a lane", "dead letters", "1,200", "alice"):
        assert each in text


def test_members_are_put_together() -> None:
    busy, calm = part(), part(keys=[], load={"seconds": 32.0, "hottest": 1.0}, breaker="open", gaps={"5": 9000})
    text = shown(busy, calm, silent={"http://gone:1": "refused"})
    for each in ("2 of 3 members", "25.0", "4 of 32", "9,000", "closed, open", "http://gone:1: refused", "1,802"):
        assert each in text
    assert "Shared by all 32 lanes it takes 6.0 s, 20.0 times as fast; shared within each member 10.0 s." in text


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"seconds": 16.0, "hottest": 1.0}, "No key holds up the others: a split would give nothing."),
        ({"seconds": 16.0, "hottest": 30.0}, "30.0 times as fast. Now it keeps up."),
    ],
)
def test_a_key_that_holds_up_nobody_is_told_so(load: dict[str, float], words: str) -> None:
    (group,) = groups_of([{"handlers": [part(load=load)]}])
    assert split_words(group.loads, group.span).endswith(words)


def test_one_member_with_more_than_its_share_is_no_hot_key() -> None:
    parts = [part(load={"seconds": seconds, "hottest": 1.0}) for seconds in (320.0, 0.0)]
    (group,) = groups_of([{"handlers": [each]} for each in parts])
    assert "20.0 s at least, as one member has more than its share" in split_words(group.loads, group.span)


def test_keys_do_nothing_to_the_terminal() -> None:
    nasty = "[red]\x1b]0;x\x07\u202e\x00"
    found = part(topic=nasty, handler=nasty)
    found["keys"][0]["key"] = nasty
    text = shown(found, silent={"http://x": nasty})
    assert not {"\x1b", "\x07", "\u202e", "\x00"} & set(text)
    assert text.count(r"[red]\x1b]0;x\x07\u202e\x00") == 4


def test_times_are_for_people() -> None:
    assert [seconds(each) for each in (0.0421, 1, 99.94, 150)] == ["42 ms", "1.0 s", "99.9 s", "2.5 min"]


def hot_app(release: asyncio.Event) -> App:
    app = App("billing")

    @app.on("orders", concurrency=4, breaker=Breaker())
    async def charge(event: Event) -> None:
        if event.raw.key == b"h":
            await release.wait()

    return app


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "keygrouping", "top", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)


async def test_the_command_shows_which_key_blocks() -> None:
    with running(hot_app(asyncio.Event()), "hhhbc") as runner, told(0, runner) as port:
        (lanes,) = runner.lanes
        await until(lambda: lanes.tally.ended == 2)
        found = await asyncio.to_thread(command, f"127.0.0.1:{port}", "http://127.0.0.1:1", "--keys", "1")
    assert found.returncode == 0, found.stderr
    assert "billing · 1 of 2 members" in found.stdout
    (row,) = [line.split() for line in found.stdout.splitlines() if line.split()[:1] == ["1"]]
    assert row[1:3] == ["h", "2"] and "call" in row
    assert "4.0 times as fast" in found.stdout
    assert "http://127.0.0.1:1: <urlopen error" in found.stdout


@contextmanager
def other_server() -> Iterator[int]:
    """Something else than an app."""
    answers: dict[str, Any] = {"/keys": lambda: text(HTTPStatus.OK, "[]")}
    with serving(0, answers) as port:
        yield port


async def test_who_tells_nothing_is_named_and_ends_it_with_1() -> None:
    with other_server() as port:
        found = await asyncio.to_thread(command, f"http://127.0.0.1:{port}", "http://127.0.0.1:1/")
    assert found.returncode == 1
    first, second = found.stderr.splitlines()
    assert first == f"keygrouping top: http://127.0.0.1:{port}: what is there is no app of this version"
    assert second.startswith("keygrouping top: http://127.0.0.1:1/: <urlopen error")


@pytest.mark.parametrize("wrong", ["ftp://a", "http://", "http://a:99999", "file:///etc/passwd"])
def test_an_address_that_is_none_is_told(wrong: str) -> None:
    found = command(wrong)
    assert found.returncode == 2
    assert f"give http://HOST:PORT, not {wrong!r}" in found.stderr


async def test_a_terminal_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    answer: Answer = (HTTPStatus.OK, "application/json", orjson.dumps({"app": "billing", "handlers": [part()]}))

    real = time.sleep

    def sleep(seconds: float) -> None:
        if seconds != 0.5:  # other threads of this process sleep, too
            return real(seconds)
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt

    target = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr("rich.console.Console", lambda **_: target)
    monkeypatch.setattr("time.sleep", sleep)
    with serving(0, {"/keys": lambda: answer}) as port:
        import argparse

        parser = argparse.ArgumentParser()
        top.declare(parser)
        given = parser.parse_args([f"http://127.0.0.1:{port}", "--every", "0.5"])
        with pytest.raises(KeyboardInterrupt):
            await asyncio.to_thread(top.run, given)
    assert isinstance(target.file, io.StringIO)
    assert target.file.getvalue().count("billing") == 3


async def test_what_members_tell_is_what_they_do() -> None:
    release = asyncio.Event()
    with running(hot_app(release), "hhhbc") as runner, told(0, runner) as port:
        (lanes,) = runner.lanes
        await until(lambda: lanes.tally.ended == 2)
        answers = await asyncio.to_thread(ask, [f"http://127.0.0.1:{port}"])
        (group,) = groups_of(answers.told)
        assert (group.sum("busy"), group.sum("lanes"), group.sum("held_events"), group.gap) == (1, 4, 3, 5)
        assert [(key.name, key.waiting, key.what) for key in group.by_need()[:1]] == [("h", 2, "key")]
        release.set()
        await until(lambda: lanes.scheduler.idle)
        answers = await asyncio.to_thread(ask, [f"http://127.0.0.1:{port}"])
    (group,) = groups_of(answers.told)
    assert (group.sum("ended"), group.sum("held_events"), group.gap) == (5, 0, 0)
    assert json.loads(json.dumps(answers.told))[0]["app"] == "billing"
