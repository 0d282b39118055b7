"""One small run of everything at install: it makes the class-data archives and compiles the kernels."""

import asyncio
import logging
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
from aiokafka.errors import KafkaError
from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.errors import Fatal

from keygrouping_local import archives
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.checks import check_machine
from keygrouping_local.deployment import Deployment, Event
from keygrouping_local.errors import LocalError
from keygrouping_local.jars import default_jars_dir
from keygrouping_local.small_spark import java_options
from keygrouping_local.workloads import workload

_DAY_MS = 86_400_000
_ENDS_WITHIN = 120.0


def _events(days: int, keys: int) -> Iterator[Event]:
    for n in range(days * keys * 4):
        value = b'{"dep_delay":%d,"distance":100,"dest":"%d"}' % (n % 60, n % 5)
        yield Event(n % 4, b"key-%d" % (n % keys), value, n * _DAY_MS // (keys * 4))


async def warm_up() -> None:
    """Runs the default job on a handful of events, on Spark, with JVMs that note what they load.

    However it ends, it leaves no process behind; and no archive, unless it was written whole.
    """
    running = asyncio.current_task()
    assert running is not None
    for request in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(request, running.cancel)
    try:
        await _warm_up()
    except BaseException:
        archives.archive("spark").unlink(missing_ok=True)
        raise


async def _warm_up() -> None:
    check_machine("spark", True, default_jars_dir())
    job = workload("flights").job_text
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker(Path(folder) / "broker", java_options=archives.writing("broker")) as broker,
    ):
        async with Deployment(broker.bootstrap_servers, "warmup", Path(folder), job) as deployment:
            deployment.start("spark-0", java_options=java_options(archives.writing("spark")))
            deployment.start("router-0")
            await deployment.write(_events(days=5, keys=10))
            await deployment.finish()
            await deployment.until(deployment.is_final)
            _stop_spark(deployment)


def _stop_spark(deployment: Deployment) -> None:
    """Stops the job and waits for its JVM, which writes the archive after its Python process has ended."""
    virtual_machines = psutil.Process(deployment.pid("spark-0")).children(recursive=True)
    deployment.stop("spark-0")
    _, alive = psutil.wait_procs(virtual_machines, _ENDS_WITHIN)
    for process in alive:
        process.kill()
    if alive:
        raise LocalError(f"Spark's JVM has not ended within {_ENDS_WITHIN:.0f} s")


def main() -> None:
    """Command `python -m keygrouping_local.warmup`."""
    take_no_arguments("python -m keygrouping_local.warmup", about=__doc__)
    logging.basicConfig(level=logging.CRITICAL)
    sys.stdout.write("a first small run, so that later ones start in half the time (about a minute, once)\n")
    sys.stdout.flush()
    try:
        asyncio.run(warm_up())
    except (LocalError, Fatal, KafkaError) as error:
        sys.exit(f"keygrouping: later runs will start slowly: {error}")
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit("keygrouping: later runs will start slowly: the first small run was interrupted")


if __name__ == "__main__":
    main()
