"""Command line of the producer: `keygrouping-producer`, all settings from the environment."""

from __future__ import annotations

import sys

from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.run import run
from keygrouping_service.settings import load

from keygrouping_producer.service import serve
from keygrouping_producer.settings import ProducerSettings


def main() -> None:
    """Runs the producer; exits with 0 at its end or on SIGTERM, 2 on wrong settings, 1 on what can't be retried."""
    take_no_arguments("keygrouping-producer")
    settings = load(ProducerSettings)
    sys.exit(run(lambda stop: serve(settings, stop), settings))
