"""What befalls the members of a group in fault tests."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable

Member = asyncio.subprocess.Process


def shuffled(kills: int, rebalances: int, sleeps: int) -> list[str]:
    """In random order. A rebalance is a member that comes or one that leaves."""
    found = ["kill"] * kills + ["join", "leave"] * (rebalances // 2) + ["sleep"] * sleeps
    random.Random(7).shuffle(found)
    return found


async def strike(
    fault: str, members: list[Member], chance: random.Random, new: Callable[[], Awaitable[Member]]
) -> None:
    """One member is killed and replaced, ends, sleeps, or comes."""
    if fault == "join" or len(members) == 1:
        members.append(await new())
        return
    member = members.pop(chance.randrange(len(members)))
    if fault == "sleep":
        member.send_signal(signal.SIGSTOP)
        await asyncio.sleep(15)
        member.send_signal(signal.SIGCONT)
        members.append(member)
    elif fault == "leave":
        member.terminate()
        assert await member.wait() == 0
    else:
        member.kill()
        await member.wait()
        members.append(await new())
