"""Where experiments are run: the scale and seed, the streams and their progress."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from keygrouping.grouping import Grouping
from keygrouping.simulate import Deal, Result, SimulatorSettings, simulate
from keygrouping.workload import Workload, workload

Case = TypeVar("Case")
Progress = Callable[[float], None]
"""Is told the part that is done, 0 to 1."""

INTERVALS = 100
"""Points in time at which the balance of a stream is looked at, unless told otherwise."""


class Lab:
    """Runs the cases of an experiment, the same ones for the same scale and seed.

    `events`: events of each stream; `seed`: that of the workloads; `deal`: how sources get their events.
    """

    def __init__(
        self,
        events: int,
        seed: int = 0,
        progress: Progress | None = None,
        deal: Deal = Deal.ROUND_ROBIN,
    ) -> None:
        self.events = events
        self.seed = seed
        self.deal = deal
        self._progress = progress or (lambda _: None)
        self._case, self._cases = 0, 1
        self._streams: dict[tuple[object, ...], Workload] = {}

    def each(self, cases: Sequence[Case]) -> Iterator[Case]:
        """The cases in their order; each is one `run`, whose progress is told."""
        self._cases = len(cases)
        for self._case, case in enumerate(cases):
            self._tell(0.0)
            yield case
        self._progress(1.0)

    def workload(self, name: str, events: int | None = None, settings: Mapping[str, object] | None = None) -> Workload:
        """A workload by its name, the same object whenever it is asked for: its keys are hashed once."""
        length = self.events if events is None else events
        key = (name, length, *sorted((settings or {}).items()))
        if key not in self._streams:
            self._streams[key] = workload(name, length, self.seed, settings)
        return self._streams[key]

    def run(
        self,
        stream: Workload,
        groupings: Sequence[Grouping],
        settings: SimulatorSettings | None = None,
        interval: int | None = None,
    ) -> Result:
        """Simulate a stream through one grouping per source; `interval` is a hundredth of it unless given."""
        events = stream.events or 1
        return simulate(
            stream,
            groupings,
            settings,
            interval=max(1, events // INTERVALS) if interval is None else interval,
            deal=self.deal,
            progress=lambda done: self._tell(done / events),
        )

    def _tell(self, part: float) -> None:
        self._progress((self._case + part) / self._cases)
