"""How a process ends whose app can't run: by a line for each fault, without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka.errors import KafkaConnectionError

from keygrouping_app.environment import BROKERS
from keygrouping_app.handlers import AppError


@contextmanager
def faults_told(command: str) -> Iterator[None]:
    """Ends the process with code 2 and one line for each fault of an AppError, with 1 if no broker is reached."""
    try:
        yield
    except AppError as wrong:
        sys.stderr.writelines(f"keygrouping {command}: {fault}\n" for fault in wrong.faults)
        sys.exit(2)
    except KafkaConnectionError as error:
        told = f"{error}: see that the brokers run, and that the App names them, or {BROKERS} or --bootstrap-servers"
        sys.exit(f"keygrouping {command}: {told}")
