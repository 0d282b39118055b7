"""As many executors as there are workers in use, where executors are processes or pods of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class Executors:
    """Asks the cluster manager for more executors, or ends the youngest ones.

    Tasks of an executor that is ended run again elsewhere, and state comes back from the checkpoint, so nothing is
    lost or doubled.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._jvm: Any = spark.sparkContext._jvm
        self.wanted = 0
        """How many were asked for last."""

    @property
    def are_apart(self) -> bool:
        """Whether there are executors besides the driver."""
        return not self._context.isLocal()

    @property
    def are_allocated_by_spark(self) -> bool:
        """Whether Spark itself decides how many there are, by the tasks that wait."""
        return bool(self._context.getConf().getBoolean("spark.dynamicAllocation.enabled", False))

    def ids(self) -> list[str]:
        """Names of the running executors, the oldest first."""
        found = self._context.getExecutorIds()
        return sorted((found.apply(index) for index in range(found.size())), key=_age)

    def become(self, number: int) -> None:
        """Asks for this many."""
        surplus = self.ids()[number:]
        none = self._jvm.PythonUtils.toScalaMap({})
        self._context.requestTotalExecutors(number, 0, none)
        if surplus:
            self._context.killExecutors(self._jvm.PythonUtils.toSeq(surplus))
            # Each kill has lowered the target by one.
            self._context.requestTotalExecutors(number, 0, none)
        self.wanted = number

    async def follow(self, workers: Callable[[], int], pause: float) -> None:
        """Follows this number, looked at every `pause` seconds; 0 is not known yet.

        With local Spark, or where Spark allocates executors by itself, it returns.
        """
        if not self.are_apart:
            return
        if self.are_allocated_by_spark:
            log.info("spark.dynamicAllocation.enabled: Spark decides on the number of executors, not the router")
            return
        while True:
            number = workers()
            if number and number != self.wanted:
                try:
                    await asyncio.to_thread(self.become, number)
                    log.info("%d executors requested, one per worker", number)
                except Py4JError as error:
                    log.warning("cannot request %d executors: %s", number, str(error).splitlines()[0])
            await asyncio.sleep(pause)


def _age(executor: str) -> tuple[int, str]:
    return (int(executor), "") if executor.isdecimal() else (0, executor)
