"""DStream: the precision of its predictor, the size of the synopsis, and throughput and balance.

Source: Chen, Zhang and Jin, "Popularity-aware Differentiated Distributed Stream Processing on Skewed Streams" (ICNP
2017), sections IV and VI.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from keygrouping.hashing import SEED
from keygrouping.keyspace.predictor import LEAST_DECLINE, HotKeyPredictor, PredictorRules
from keygrouping.workload import Workload
from keygrouping.workload.popularity import Zipf
from numpy.typing import NDArray

from keygrouping_experiments.lab import Lab
from keygrouping_experiments.model import Claim, Experiment, Line, Outcome, Panel, Row
from keygrouping_experiments.published import compare, published
from keygrouping_experiments.rows import line, value, values
from keygrouping_experiments.streams import key_counts

PAPER = (
    'Chen, Zhang and Jin, "Popularity-aware Differentiated Distributed Stream Processing on Skewed Streams" (ICNP 2017)'
)
_KEYS = 100_000
_EXPONENTS = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0)
_POWERS = (7, 8, 9, 10)
_R = 10
_TYPICAL = 1.0


def _precision(lab: Lab) -> Outcome:
    rows: list[Row] = []
    for z in lab.each(_EXPONENTS):
        counts, hot = _predicted(lab.workload("zipf", settings={"z": z, "keys": _KEYS}))
        predicted = int(hot.sum())
        shares = {
            f"2^{power} (%)": 100 * int(np.sum(counts[hot] >= 2**power)) / predicted if predicted else math.nan
            for power in _POWERS
        }
        rows.append({"z": z, "predicted": predicted, **shares})
    ours = {
        (f"c={power}", "keys with 2^c events or more (%)"): value(rows, f"2^{power} (%)", z=_TYPICAL)
        for power in _POWERS
    }
    bound = tuple(100 * (1 + 2.0 ** (power - _R)) * math.exp(-(2.0 ** (power - _R))) for power in _POWERS)
    exponents = tuple(float(power) for power in _POWERS)
    lines = [Line("lower bound", exponents, bound)]
    lines += [
        Line(f"z={row['z']}", exponents, tuple(float(row[f"2^{power} (%)"]) for power in _POWERS)) for row in rows
    ]
    panel = Panel("predicted keys that are frequent", "c", "keys with 2^c events or more (%)", tuple(lines))
    return Outcome(tuple(rows), (panel,), compare("dstream-precision", ours), _precision_claims(rows))


def _predicted(stream: Workload) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Each key's number of events, and whether it has got two different bits, while bits hardly decline."""
    predictor = HotKeyPredictor(PredictorRules(LEAST_DECLINE, threshold=_R))
    for chunk in stream.chunks():
        predictor.observe(stream.table.hashes((SEED,))[chunk.keys, 0])
    candidates = predictor.strongest()
    announced = candidates["hash"][candidates["announced"] != 0]
    return key_counts(stream), np.isin(stream.table.hashes((SEED,))[:, 0], announced)


def _precision_claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    bounds = {
        power: published("dstream-precision")[f"c={power}", "keys with 2^c events or more (%)"].value
        for power in _POWERS
    }
    met = [all(float(row[f"2^{power} (%)"]) >= bounds[power] for power in _POWERS) for row in rows]
    where = ", ".join(f"{row['z']}" for row, is_met in zip(rows, met, strict=True) if is_met)
    return (
        Claim(
            "a predicted key has at least 2^c events with at least the probability of table I",
            "section IV.A, theorem 1",
            f"met for z = {where or 'none'} of {len(rows)}",
            all(met),
        ),
    )


PRECISION = Experiment(
    name="dstream-precision",
    title="how frequent predicted keys are",
    source=f"{PAPER}, section IV.A, theorem 1 and table I",
    setup=(
        f"The predictor with r = {_R} on Zipf streams of 100 k keys, with the least decline that it takes (1e-5), as "
        "the theorem has none. Of all keys with two different bits at the end: the part that has occurred 2^c times "
        "or more."
    ),
    differences=(
        "The theorem is a statement on keys whose numbers of events are spread evenly over all numbers. In a "
        "Zipf stream there are more rare keys than frequent ones, each with a small chance of two bits, and "
        "the more of them there are, the lower is the precision."
    ),
    events=20_000_000,
    run=_precision,
)

_DECLINES = (0.002, 0.005, 0.01, 0.02, 0.05)
_SAMPLES = 200
_ZIPFS = (0.8, 1.0, 1.5)


def _synopsis(lab: Lab) -> Outcome:
    rows: list[Row] = []
    for z, decline in lab.each([(z, decline) for z in _ZIPFS for decline in _DECLINES]):
        stream = lab.workload("zipf", settings={"z": z, "keys": 1_000_000})
        hot = int(np.count_nonzero(Zipf(z, 1_000_000).share(np.arange(1, 1000)) > 2 * decline))
        for done, size in _sizes(stream, decline):
            rows.append({"z": z, "p": decline, "keys above 2p": hot, "time": done, "items": size})
    averages = {(z, p): _stable(rows, z, p) for z in _ZIPFS for p in _DECLINES}
    through_time = tuple(line(rows, f"p={p}", "time", "items", z=1.0, p=p) for p in _DECLINES)
    by_p = tuple(Line(f"z={z}", _DECLINES, tuple(averages[z, p] for p in _DECLINES)) for z in _ZIPFS)
    bound = Line("1 / p", _DECLINES, tuple(1 / p for p in _DECLINES))
    panels = (
        Panel("z = 1", "part of the stream", "items in the synopsis", through_time, log_y=True),
        Panel("on average", "p", "items in the synopsis", (*by_p, bound), log_x=True, log_y=True),
    )
    return Outcome(tuple(rows), panels, claims=_synopsis_claims(rows, averages))


def _sizes(stream: Workload, decline: float) -> list[tuple[float, int]]:
    """The number of candidates through time, by part of the stream."""
    predictor = HotKeyPredictor(PredictorRules(decline))
    sizes: list[tuple[float, int]] = []
    done, total = 0, stream.events or 1
    for chunk in stream.chunks():
        for part in np.array_split(stream.table.hashes((SEED,))[chunk.keys, 0], max(1, _SAMPLES * len(chunk) // total)):
            predictor.observe(part)
            done += len(part)
            sizes.append((done / total, len(predictor)))
    return sizes


def _stable(rows: Sequence[Row], z: float, decline: float) -> float:
    """The average size in the second half of the stream."""
    sizes = values(rows, "items", z=z, p=decline)
    return float(np.mean(sizes[len(sizes) // 2 :]))


def _synopsis_claims(rows: Sequence[Row], averages: Mapping[tuple[float, float], float]) -> tuple[Claim, ...]:
    products = {z: [averages[z, p] * p for p in _DECLINES] for z in _ZIPFS}
    most = max(max(each) for each in products.values())
    late = {(float(row["z"]), float(row["p"])): int(row["keys above 2p"]) for row in rows}
    return (
        Claim(
            "the number of items is inversely proportional to p",
            "section VI.B, figure 21",
            "items x p: " + ", ".join(f"{min(each):.2f} to {max(each):.2f} at z = {z}" for z, each in products.items()),
            all(max(each) < 2 * min(each) for each in products.values()),
        ),
        Claim(
            "it is stable below 1 / p",
            "section IV.C, theorem 3",
            f"items x p at most {most:.2f} on average",
            most < 1,
        ),
        Claim(
            "and above the number of keys with a rate above 2p",
            "section IV.C, theorem 3",
            ", ".join(f"{averages[1.0, p]:.0f} > {late[1.0, p]}" for p in _DECLINES) + " (z = 1)",
            all(averages[case] > hot for case, hot in late.items()),
        ),
    )


SYNOPSIS = Experiment(
    name="dstream-synopsis",
    title="size of the synopsis over the decline",
    source=f"{PAPER}, section IV.C, theorem 3, and section VI.B, figure 21",
    setup="The predictor with r = 6 and l = 16 on Zipf streams of 1 M keys.",
    differences=(
        "The figure's values are not printed. The theorem's proof counts a rare key as gone after one shift; but its "
        "bit is number b with probability 2 ** -(b + 1), and it goes after b + 1 shifts, two on average. So on "
        "streams of rare keys there are up to 2 / p items; at z = 1.5 most updates are those of a few keys, and "
        "there are less."
    ),
    events=5_000_000,
    run=_synopsis,
)
