"""Command `keygrouping top`: what a running app does, on a terminal."""

from __future__ import annotations

import argparse
import sys
import time
from urllib.parse import urlsplit

HELP = "show which keys of a running app block, and what a split would give"
_EVERY = 2.0
_ROWS = 10
_WIDTH = 110
"""Where stdout is no terminal."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds this command's arguments."""
    parser.description = (
        "Shows what members of an App do now: lanes, rates, gaps, retries, dead letters, breakers, which keys need "
        "most of the handlers' time and wait, and what a split of the hot ones would give. It asks each member at "
        "/keys, on the App's port. Exit code: 1 if no member answers at the start."
    )
    add = parser.add_argument
    add("url", nargs="+", type=_url, metavar="URL", help="of a member, such as http://127.0.0.1:8080; give all of them")
    add("--once", action="store_true", help="show it once and end; so it is where stdout is no terminal")
    add("--every", type=_seconds, default=_EVERY, metavar="SECONDS", help=f"between two looks; default {_EVERY:g}")
    add("--keys", type=_rows, default=_ROWS, metavar="N", help=f"keys to show of each handler; default {_ROWS}")


def run(given: argparse.Namespace) -> None:
    """Shows the members that the arguments name, until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from keygrouping_app.commands.top_view import page
    from keygrouping_app.members import ask

    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=_WIDTH)
    answers = ask(given.url)
    if not answers.told:
        sys.stderr.writelines(f"keygrouping top: {url}: {why}\n" for url, why in answers.silent.items())
        sys.exit(1)
    if given.once or not console.is_terminal:
        console.print(page(answers, given.keys))
        return
    with Live(page(answers, given.keys), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(given.every)
            live.update(page(ask(given.url), given.keys), refresh=True)


def _url(text: str) -> str:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise argparse.ArgumentTypeError(f"give http://HOST:PORT, not {text!r}")
    return url


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"must be from 0.1 to 3600, not {text!r}")
    return seconds


def _rows(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"must be from 1 to 100, not {text!r}")
    return int(text)
