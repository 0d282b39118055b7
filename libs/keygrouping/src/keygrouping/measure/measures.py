"""What is known of an interval or a run once it has been counted, and all measures that follow from it."""

from dataclasses import dataclass

from keygrouping.measure.formulas import cv, dist_cost, imbalance, imbalance_fraction, lambda_, least_share, std_dev


@dataclass(frozen=True)
class Measures:
    """The balance of one interval or of the run, and what it costs."""

    events: int
    keys: int
    """Distinct keys."""
    pairs: int
    """Distinct (key, worker) pairs."""
    partials: int
    """Distinct (key, worker, interval) triples: the messages that the aggregator merges if every worker flushes at the
    end of every interval."""
    copies: int
    """Sum over the events of the number of workers of their keys."""
    width_changes: int
    """Pairs never seen before in the run, the first one of each key left out."""
    moved_keys: int
    moved_state: float
    """Weight of the state that was migrated."""
    loads: tuple[float, ...]
    """Weight of each worker's events."""

    @property
    def weight(self) -> float:
        """Of all events together."""
        return float(sum(self.loads))

    @property
    def lambda_(self) -> float:
        """Largest over average load."""
        return lambda_(self.loads)

    @property
    def least_share(self) -> float:
        """Least over average load: 0 is an idle worker."""
        return least_share(self.loads)

    @property
    def imbalance(self) -> float:
        """Largest minus average load."""
        return imbalance(self.loads)

    @property
    def imbalance_fraction(self) -> float:
        """The imbalance as a part of all load."""
        return imbalance_fraction(self.loads)

    @property
    def std_dev(self) -> float:
        """Standard deviation of the loads' shares in percentage points."""
        return std_dev(self.loads)

    @property
    def cv(self) -> float:
        """Coefficient of variation of the loads."""
        return cv(self.loads)

    @property
    def dist_cost(self) -> float:
        """Distinct workers per key, every key alike."""
        return dist_cost(self.pairs, self.keys)

    @property
    def replication(self) -> float:
        """Distinct workers per key, each key as often as it has events; 1 without events."""
        return self.copies / self.events if self.events else 1.0

    @property
    def merges_per_event(self) -> float:
        """Partials per event; 0 without events."""
        return self.partials / self.events if self.events else 0.0
