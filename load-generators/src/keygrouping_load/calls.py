"""HTTP load: starts locust with the users that the settings ask for."""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from keygrouping_service.errors import Fatal

from keygrouping_load.settings import HttpLoadSettings

USERS = Path(__file__).with_name("users.py")
_STOP_SECONDS = 10
_LOOK_SECONDS = 1.0


def locust_command(settings: HttpLoadSettings) -> list[str]:
    """How locust is called; its exit code is 1 if any request failed."""
    classes = [
        name
        for name, url in (("ApiReader", settings.router_url), ("EventPoster", settings.producer_url))
        if url is not None
    ]
    users = max(settings.users, len(classes))
    return [
        *(sys.executable, "-m", "locust", "--locustfile", str(USERS), "--headless", "--only-summary"),
        *("--users", str(users), "--spawn-rate", str(users), "--run-time", f"{settings.seconds}s"),
        *("--stop-timeout", str(_STOP_SECONDS), "--exit-code-on-error", "1", "--loglevel", settings.log_level),
        *classes,
    ]


def wait_until_ready(settings: HttpLoadSettings) -> None:
    """Returns once what is to be called says that it is ready; `Fatal` if that takes longer than the timeout."""
    deadline = time.monotonic() + settings.ready_timeout
    for url in (settings.router_url, settings.producer_url):
        while url is not None and (fault := _fault(f"{url.rstrip('/')}/readyz")):
            if time.monotonic() > deadline:
                raise Fatal(f"{url} is not ready after {settings.ready_timeout:g} s: {fault}")
            time.sleep(_LOOK_SECONDS)


def _fault(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return ""
    except urllib.error.HTTPError as error:
        return f"it answers {error.code}"
    except OSError as error:
        return str(error)


def call(settings: HttpLoadSettings) -> None:
    """Becomes locust, once there is something to call."""
    wait_until_ready(settings)
    command = locust_command(settings)
    os.execv(command[0], command)
