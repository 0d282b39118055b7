"""What is simulated around the grouping: how fast workers and aggregators are, and how fast events come."""

from dataclasses import dataclass

from keygrouping.settings import Settings, setting


@dataclass(frozen=True)
class SimulatorSettings(Settings):
    """Settings of the simulated cluster.

    The time of one event at a worker is that of the papers: 0.1 ms is the smallest delay of Partial Key Grouping
    (section 6, Q5), and what the workers of Dynamic Key Grouping (its code) sleep per event on average.
    """

    service_time: float = setting(1e-4, "time of a worker for an event of weight 1", unit="s", above=0)
    load: float = setting(
        0.95,
        "offered load as a part of what all workers do at best: it sets the pace of virtual time, and with it that of "
        "the groupings, and latency is measured under it",
        above=0,
    )
    speeds: tuple[float, ...] = setting(
        (), "speed of each worker relative to the service time, where they are not all alike; empty: all 1", above=0
    )
    queue: int = setting(
        1000,
        "events that one worker holds at most, the one in work among them, before all sources wait for it, when "
        "throughput is measured",
        least=1,
        most=1_000_000,
    )
    merge_time: float = setting(1e-5, "time of an aggregator for one partial", unit="s", least=0)
    aggregators: int | None = setting(
        None, "number of aggregators, which share the partials evenly; null: as many as workers", least=1
    )
    clock_step: float = setting(0.1, "steps in which the time goes on that groupings are told", unit="s", above=0)
