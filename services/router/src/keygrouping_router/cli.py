"""Command line of the router: `keygrouping-router`, all settings from the environment."""

from __future__ import annotations

import sys

from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.run import run
from keygrouping_service.settings import load

from keygrouping_router.service import serve
from keygrouping_router.settings import RouterSettings


def main() -> None:
    """Runs the router until SIGTERM or SIGINT; exits with 2 on wrong settings, 1 on what can't be retried."""
    take_no_arguments("keygrouping-router")
    settings = load(RouterSettings)
    sys.exit(run(lambda stop: serve(settings, stop), settings))
