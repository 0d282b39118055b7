"""How each kind of fault is done to a world, and undone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from keygrouping_local.cluster import BROKERS
from keygrouping_local.proxy import Api, Match, Request
from keygrouping_service.kafka import clients

from .schedule import WAYS, Fault, Possible, Schedule
from .world import SMALL_DISK, World

_BETWEEN = 2.0
_COMMITS = 64
"""More than are under way at once, in any world."""
_MEGABYTE = bytes(1 << 20)


def possible(world: World) -> Possible:
    """What can be struck in a world."""
    return Possible(world.services, list(world.clocks), None if world.disk is None else SMALL_DISK)


async def strike(world: World, schedule: Schedule) -> list[str]:
    """Does all faults of a schedule at their times and undoes them; returns what could not be done, and why."""
    outcomes = await asyncio.gather(*(_do(world, fault) for fault in schedule.faults), return_exceptions=True)
    return [
        f"{fault.kind}: {outcome}"
        for fault, outcome in zip(schedule.faults, map(_told, outcomes), strict=True)
        if outcome
    ]


def _told(outcome: str | BaseException | None) -> str | None:
    return repr(outcome) if isinstance(outcome, BaseException) else outcome


async def _do(world: World, fault: Fault) -> str | None:
    await asyncio.sleep(fault.at)
    return await _KINDS[fault.kind](world, fault)


# requests


def _matching(name: str) -> Match:
    if name == "all":
        return lambda _: True
    api = Api[name]
    # An abort that comes late does what the commit before it did not; a commit is what can do harm.
    return lambda request: request.api is api and request.committed is not False


async def _hold(world: World, fault: Fault) -> str:
    """Keeps a request back; a commit's at most until the transaction after it is under way, where it does most harm."""
    caught: list[Request] = []
    sent_again: list[Request] = []

    def first(request: Request) -> bool:
        if not _matching(fault.target)(request):
            return False
        caught.append(request)
        return True

    def next_under_way(request: Request) -> bool:
        if request.transactional_id is None or request.transactional_id != caught[0].transactional_id:
            return False
        if request.api is not Api.PRODUCE:
            sent_again.append(request)
        return request.api is Api.PRODUCE and bool(sent_again)

    after = next_under_way if fault.target == Api.END_TXN.name else None
    held = world.proxy.hold(first, answer=fault.detail == "answer", until=after)
    await asyncio.sleep(fault.lasts)
    held.remove()
    held.release()
    return "" if held.is_caught else f"there was no {fault.target}"


async def _lose(world: World, fault: Fault) -> None:
    rules = [world.proxy.reset(_matching(fault.target), answer=fault.detail == "answer") for _ in range(3)]
    await asyncio.sleep(fault.lasts)
    for rule in rules:
        rule.remove()


async def _delay(world: World, fault: Fault) -> None:
    rule = world.proxy.delay(_matching(fault.target), float(fault.detail.removesuffix(" s")))
    await asyncio.sleep(fault.lasts)
    rule.remove()


async def _reorder(world: World, fault: Fault) -> str:
    first: list[Request] = []

    def one(request: Request) -> bool:
        if not _matching(fault.target)(request):
            return False
        first.append(request)
        return True

    def other(request: Request) -> bool:
        return bool(first) and request.connection != first[0].connection and _matching(fault.detail)(request)

    held = world.proxy.hold(one, until=other)
    await asyncio.sleep(fault.lasts)
    held.remove()
    held.release()
    return "" if held.is_caught else f"there was no {fault.target}"


# links


def _port(world: World, fault: Fault) -> int:
    return world.cluster.ports[_number(fault)]


def _number(fault: Fault) -> int:
    return int(fault.target.removeprefix("broker-"))


async def _cut(world: World, fault: Fault) -> None:
    there, back = fault.detail != WAYS[2], fault.detail != WAYS[1]
    cut = world.proxy.cut(_port(world, fault), to_broker=there, from_broker=back)
    await asyncio.sleep(fault.lasts)
    cut.heal()


async def _throttle(world: World, fault: Fault) -> None:
    world.proxy.throttle(1000 * float(fault.detail.removesuffix(" kB/s")), _port(world, fault))
    await asyncio.sleep(fault.lasts)
    world.proxy.throttle(None, _port(world, fault))


async def _drop_connections(world: World, fault: Fault) -> None:
    world.proxy.drop_connections(_port(world, fault))


# brokers


async def _restart(world: World, fault: Fault) -> None:
    async with world.brokers:
        await _restart_one(world, _number(fault), fault.lasts)


async def _rolling_restart(world: World, _: Fault) -> None:
    async with world.brokers:
        for number in range(BROKERS):
            await _restart_one(world, number, 0)
            await asyncio.sleep(_BETWEEN)


async def _restart_one(world: World, number: int, pause: float) -> None:
    broker = world.cluster.brokers[number]
    await asyncio.to_thread(broker.stop)
    await asyncio.sleep(pause)
    await asyncio.to_thread(broker.start)


async def _kill_broker(world: World, fault: Fault) -> None:
    broker = world.cluster.brokers[_number(fault)]
    async with world.brokers:
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(fault.lasts)
        await asyncio.to_thread(broker.start)


async def _freeze_broker(world: World, fault: Fault) -> None:
    async with world.brokers:
        world.cluster.freeze(_number(fault))
        await asyncio.sleep(fault.lasts)
        world.cluster.thaw(_number(fault))


async def _move_leaders(world: World, fault: Fault) -> None:
    """Gives all partitions of a topic another preferred leader; the brokers move there within seconds."""
    internal = fault.target.startswith("__")
    topic = fault.target if internal else f"{world.deployment.settings.application}.{fault.target}"
    async with clients.started(AIOKafkaAdminClient(bootstrap_servers=world.cluster.bootstrap_servers)) as admin:
        (description,) = await admin.describe_topics([topic])
        by = int(fault.detail.removeprefix("by "))
        partitions: list[tuple[int, list[int], dict[int, bytes]]] = []
        for partition in description["partitions"]:
            replicas = list(partition["replicas"])
            partitions.append((partition["partition"], replicas[by:] + replicas[:by], {}))
        await admin._send_to_controller(AlterPartitionReassignmentsRequest(10_000, [(topic, partitions, {})], {}))


async def _disk_full(world: World, fault: Fault) -> None:
    assert world.disk is not None
    broker, ballast = world.cluster.brokers[SMALL_DISK], world.disk / "ballast"
    async with world.brokers:
        await asyncio.to_thread(_fill, ballast)
        await asyncio.sleep(fault.lasts)
        ballast.unlink()
        await asyncio.to_thread(broker.restart)


def _fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(_MEGABYTE)


# processes


async def _kill(world: World, fault: Fault) -> None:
    world.down.add(fault.target)
    world.signal(fault.target, signal.SIGKILL)
    await asyncio.sleep(fault.lasts)
    world.down.discard(fault.target)


async def _kill_in_commit(world: World, fault: Fault) -> str:
    """Kills a process that has written, and has not committed: no commit gets through meanwhile, nor later."""
    held = [world.proxy.hold(_is_commit) for _ in range(_COMMITS)]
    await asyncio.sleep(fault.lasts)
    world.signal(fault.target, signal.SIGKILL)
    for each in held:
        each.remove()
    # Not let go: brokers take offsets of a member that has died until they miss it. The others send theirs again.
    world.proxy.drop_connections()
    return "" if any(each.is_caught for each in held) else "there was no commit"


def _is_commit(request: Request) -> bool:
    return request.api is Api.OFFSET_COMMIT or _matching(Api.END_TXN.name)(request)


async def _freeze(world: World, fault: Fault) -> None:
    world.signal(fault.target, signal.SIGSTOP)
    await asyncio.sleep(fault.lasts)
    world.signal(fault.target, signal.SIGCONT)


async def _clock(world: World, fault: Fault) -> None:
    file = world.clocks[fault.target]
    file.write_text(fault.detail.removesuffix(" s"))
    await asyncio.sleep(fault.lasts)
    file.write_text("+0")


_KINDS: dict[str, Callable[[World, Fault], Awaitable[str | None]]] = {
    "hold": _hold,
    "lose": _lose,
    "delay": _delay,
    "reorder": _reorder,
    "cut": _cut,
    "throttle": _throttle,
    "drop connections": _drop_connections,
    "restart": _restart,
    "kill broker": _kill_broker,
    "freeze broker": _freeze_broker,
    "rolling restart": _rolling_restart,
    "move leaders": _move_leaders,
    "disk full": _disk_full,
    "kill": _kill,
    "kill in commit": _kill_in_commit,
    "freeze": _freeze,
    "clock": _clock,
}
