"""Executors that a driver left behind which was killed in this very pod.

Executors belong to the driver's pod and go with it. If only the container is started again, as after the kill of its
JVM, the pod is still there: the old executors end, and nobody would ever delete them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from keygrouping_service.kubernetes import Kubernetes, Missing, Unreachable

log = logging.getLogger(__name__)

_EXECUTORS = "spark-role=executor"
_LOOKS = 60
_LOOK_SECONDS = 0.5


async def delete_leftovers(api: Kubernetes, driver_pod: str) -> None:
    """Deletes the executors that belong to this pod, before a driver asks for its own, and waits until they are gone.

    New executors have the names of the old ones. What can't be deleted within half a minute stays: Spark then finds
    other names.
    """
    try:
        found = await _names(api, driver_pod)
        if not found:
            return
        log.info("deleted %d executors of a driver that was killed in this pod", len(found))
        for name in found:
            await _delete(api, name)
        for _ in range(_LOOKS):
            if not await _names(api, driver_pod):
                return
            await asyncio.sleep(_LOOK_SECONDS)
        log.warning("executors of a driver that was killed in this pod are still there")
    except Unreachable as error:
        log.warning("cannot delete executors of a previous driver in this pod, if there are any: %s", error)
    finally:
        await api.close()


async def _names(api: Kubernetes, driver_pod: str) -> list[str]:
    answer = await api.ask("GET", "pods", params={"labelSelector": _EXECUTORS})
    return [str(pod["metadata"]["name"]) for pod in answer["items"] if _belongs(pod["metadata"], driver_pod)]


def _belongs(metadata: dict[str, Any], pod: str) -> bool:
    owners = metadata.get("ownerReferences") or []
    return any(owner.get("kind") == "Pod" and owner.get("name") == pod for owner in owners)


async def _delete(api: Kubernetes, name: str) -> None:
    """At once: an executor without its driver has nothing to hand over."""
    try:
        await api.ask("DELETE", f"pods/{name}", params={"gracePeriodSeconds": "0"})
    except Missing:
        log.debug("%s is gone already", name)
