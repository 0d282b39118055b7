"""What a member of an app is asked while it runs."""

from __future__ import annotations

import json
import urllib.request


def is_ready(port: int) -> bool:
    """Whether it works, at this port of its."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return True
    except OSError:
        return False


def metric(port: int, name: str) -> float:
    """The sum of a metric over its labels; 0 if there is none. OSError if the member does not answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"keygrouping_app_{name}{{"))


def first_slot(port: int) -> int:
    """The first slot of a member of an app with one handler, whose keys move. ValueError if it has none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/keys", timeout=20) as answer:
        (handler,) = json.load(answer)["handlers"]
    return min(int(name.split()[1]) for name in handler["gaps"] if name.startswith("slot"))
