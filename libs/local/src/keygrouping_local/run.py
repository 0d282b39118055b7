"""One run of the whole pipeline on this machine, from the broker to the comparison with the oracle."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from keygrouping.printable import printable
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.end_of_input import finish_input
from keygrouping_service.kafka.topics import Topic, create_topics, topics_of
from keygrouping_service.settings import PREFIX, ServiceSettings
from rich.console import Console

from keygrouping_local.accounts import Accounts, add_lines, take_accounts
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.checks import check_machine
from keygrouping_local.comparison import Comparison, check_run
from keygrouping_local.errors import LocalError
from keygrouping_local.history import History, Turn
from keygrouping_local.observer import Observer, Snapshot, Stages
from keygrouping_local.ports import is_free
from keygrouping_local.small_spark import spark_settings
from keygrouping_local.supervisor import Service, Supervisor
from keygrouping_local.topics import delete_topics, environment_of, settings_for
from keygrouping_local.view import About, View, accounts_table, comparison_table, view_for
from keygrouping_local.workloads import Workload

MAX_WORKERS = 16
_LOOK_SECONDS = 0.5
_TIMEOUT_SECONDS = 5.0
# A finite run is declared finished as a whole, so no partition needs to be given up as idle before.
_NEVER_IDLE = "86400"
# The page is redrawn twice a second: larger transactions leave more of a small machine to all others.
_LIVE_LINGER = "0.2"
PRODUCER, ROUTER, WORKER, OBSERVER = "producer", "router", "worker", "observer"


@dataclass(frozen=True)
class Options:
    """What to run: see the command's help. `rate` is events/s, 0 without limit.

    `workers` is what routers spread events over; where workers combine it is the number of their processes.
    """

    workload: Workload
    once: bool
    grouping: str
    workers: int
    stages: Stages
    rate: float
    runner: str
    observer: bool
    bootstrap_servers: str | None
    api_port: int
    data_dir: Path
    jars_dir: Path

    @property
    def identity(self) -> str:
        """What must not mix: workload, job, runner, and whether the run ends by itself."""
        how = "once" if self.once else "live"
        return "-".join([self.workload.identity, self.runner, *(["combine"] if self.combines else []), how])

    @property
    def combines(self) -> bool:
        """Whether workers read the events themselves, so that there is no router."""
        return self.stages == "combine"

    @property
    def readers(self) -> list[str]:
        """The processes that read the events."""
        return [f"{WORKER}-{number}" for number in range(self.workers)] if self.combines else [ROUTER]


class Run:
    """A run; `stop` asks it to end in order."""

    def __init__(self, options: Options, console: Console, stop: asyncio.Event) -> None:
        self._options = options
        self._console = console
        self._stop = stop
        self._history = History(options.data_dir / "runs.json")
        self._turn: Turn = self._history.turn(options.identity, options.once)
        self._folder = options.data_dir / self._turn.application
        self._broker: EmbeddedBroker | None = None
        self._observer_url: str | None = None

    async def run(self) -> bool:
        """Runs until stopped or, if it is to end by itself, to the end; returns whether all is as it should be."""
        options = self._options
        check_machine(options.runner, options.bootstrap_servers is None, options.jars_dir)
        if options.api_port and not is_free(options.api_port):
            raise LocalError(f"port {options.api_port} is taken: choose another with --api-port, or 0 for a free one")
        if options.workload.note is not None:
            self._say(printable(options.workload.note))
        async with AsyncExitStack() as stack:
            address = options.bootstrap_servers or await self._launch_broker(stack)
            settings = settings_for(address, self._turn.application)
            if not await self._stream(settings):
                self._console.print("stopped; the next start goes on from here", highlight=False)
                return True
            comparison = await check_run(settings, options.workload.spec)
            reader = WORKER if options.combines else ROUTER
            accounts = await take_accounts(settings, comparison, reader)
            add_lines(comparison, accounts)
            self._history.complete(options.identity)
        return self._report(comparison, accounts)

    async def _launch_broker(self, stack: AsyncExitStack) -> str:
        broker = self._broker = EmbeddedBroker(self._options.data_dir / "broker", self._options.jars_dir)
        stack.push_async_callback(asyncio.to_thread, broker.stop)
        await asyncio.to_thread(broker.launch)
        return broker.bootstrap_servers

    async def _stream(self, settings: ServiceSettings) -> bool:
        """Runs the services until all results are final (True) or the user stops them (False)."""
        logs = self._folder / "logs"
        serves = "Worker's health and metrics" if self._options.combines else "API"
        about = About(self._title(), settings.bootstrap_servers, str(logs), serves)
        with Supervisor(logs) as services:
            if self._options.runner == "spark":
                # The longest start goes first, beside the broker's; the job waits for its topics.
                services.start(self._spark(settings))
            if self._broker is not None:
                self._console.print("starting the broker", highlight=False)
                await asyncio.to_thread(self._broker.wait)
            await self._prepare_topics(settings)
            for service in self._services(settings):
                services.start(service)
            async with Observer(
                settings, self._options.workload.spec, self._options.workers, self._options.stages
            ) as observer:
                with view_for(self._console) as view:
                    return await self._watch(settings, services, observer, view, about)

    async def _prepare_topics(self, settings: ServiceSettings) -> None:
        async with clients.started(clients.admin(settings)) as admin:
            if self._turn.predecessor:
                await delete_topics(admin, f"{self._turn.predecessor}.")
                shutil.rmtree(self._options.data_dir / self._turn.predecessor, ignore_errors=True)
            topics = [*topics_of(settings, max_workers=MAX_WORKERS), Topic(f"{settings.application}.progress", 1)]
            unused = {settings.routed_topic} if self._options.combines else set()
            await create_topics(admin, [topic for topic in topics if topic.name not in unused])

    async def _watch(
        self, settings: ServiceSettings, services: Supervisor, observer: Observer, view: View, about: About
    ) -> bool:
        finishing = False
        while not self._stop.is_set():
            services.check()
            if self._broker is not None:
                self._broker.check()
            url = None if finishing else services.url(self._options.readers[0])
            router = None if self._options.combines else url
            self._start_observer(settings, services, url is not None, router, view)
            # Asked before the look: what the producer wrote before it ended is then among what the look sees.
            produced = self._options.once and services.has_ended(PRODUCER)
            snapshot = await self._look(observer, router)
            if snapshot is not None:
                view.show(about, snapshot, url)
                if finishing and snapshot.is_final:
                    return True
                if produced and not finishing and snapshot.router_lag == 0:
                    await self._finish(settings, services)
                    finishing = True
            await self._pause()
        return False

    def _start_observer(
        self, settings: ServiceSettings, services: Supervisor, reading: bool, router_url: str | None, view: View
    ) -> None:
        """Starts the observer service, if it is wanted, once the events are read: a router can tell it then how many
        workers are in use.
        """
        if not self._options.observer:
            return
        if reading and not services.has_started(OBSERVER):
            topics = {f"{kind}_topic": f"{settings.application}.observer-{kind}" for kind in ("state", "audit")}
            router = {} if router_url is None else {"router_url": router_url}
            services.start(self._service(settings, OBSERVER, {**router, **topics}))
        if self._observer_url is None and (url := services.url(OBSERVER)) is not None:
            self._observer_url = url
            view.say(f"observer {url}/distribution")

    async def _look(self, observer: Observer, url: str | None) -> Snapshot | None:
        """A snapshot; None while Kafka does not answer, which passes or is told by another check."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return await observer.look(url)
        except Exception as error:
            if not can_be_retried(error):
                raise
            return None

    async def _finish(self, settings: ServiceSettings, services: Supervisor) -> None:
        await asyncio.to_thread(services.stop, self._options.readers)
        await finish_input(settings)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._stop.wait()
        except TimeoutError:
            return

    def _spark(self, settings: ServiceSettings) -> Service:
        return self._service(settings, "spark", spark_settings(settings, self._folder, self._options.jars_dir))

    def _services(self, settings: ServiceSettings) -> list[Service]:
        """All that can start once the topics are there, in the order of starting."""
        options = self._options
        router = {"workers": options.workers, "grouping": options.grouping, "http_port": options.api_port}
        producer = {**options.workload.producer, "rate": options.rate}
        if options.once:
            router["idle_timeout"] = _NEVER_IDLE
            producer["exit_when_done"] = "true"
        else:
            router["linger"] = producer["linger"] = _LIVE_LINGER
            router["store_url"] = (self._folder / "router.json").absolute().as_uri()
            producer["loop"] = "true"
        aggregator = self._service(settings, "aggregator", {})
        return [
            *([aggregator, *self._workers(settings)] if options.runner == "native" else []),
            *([] if options.combines else [self._service(settings, ROUTER, router)]),
            self._service(settings, PRODUCER, producer, finite=options.once),
        ]

    def _workers(self, settings: ServiceSettings) -> list[Service]:
        """One native worker for all that routers send; or those that read the events themselves."""
        options = self._options
        if not options.combines:
            return [self._service(settings, WORKER, {"ordinal": 0})]
        idle: dict[str, object] = {"idle_timeout": _NEVER_IDLE} if options.once else {}
        made = [self._service(settings, WORKER, {"ordinal": number, **idle}) for number in range(options.workers)]
        return [replace(worker, name=name) for name, worker in zip(options.readers, made, strict=True)]

    def _service(
        self, settings: ServiceSettings, name: str, own: Mapping[str, object], finite: bool = False
    ) -> Service:
        given = {f"{PREFIX}{name.upper()}_{key.upper()}": str(value) for key, value in own.items()}
        shared = {**os.environ, **environment_of(settings), f"{PREFIX}JOB": self._options.workload.job_text}
        if self._options.combines:
            shared[f"{PREFIX}STAGES"] = self._options.stages
        return Service(name, f"keygrouping_{name}", shared | given, finite)

    def _title(self) -> str:
        options = self._options
        name = printable(options.workload.name)
        if options.combines:
            return f"keygrouping  {name}  combined at the source  {options.workers} workers  {options.runner}"
        return f"keygrouping  {name}  {options.grouping}  {options.workers} workers  {options.runner}"

    def _report(self, comparison: Comparison, accounts: Accounts) -> bool:
        """Shows the outcome; whether all is as it should be."""
        self._console.print(accounts_table(accounts, self._options.workload.name))
        self._console.print(comparison_table(comparison))
        for fault in [*comparison.examples, *accounts.faults]:
            self._say(printable(fault), "red")
        if accounts.advice is not None:
            self._say(printable(accounts.advice), "bold red")
            return False
        good = comparison.equal and not accounts.faults
        verdict = "every window equals the oracle's" if comparison.equal else "results differ from the oracle's"
        self._say(verdict, "bold green" if good else "bold red")
        return good

    def _say(self, line: str, style: str = "") -> None:
        self._console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
