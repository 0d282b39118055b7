"""The laws that let a key be split over workers, as checks that every aggregate has to pass, whoever wrote it.

    check(MyAggregate("a", (Input("x", "number"),)), [3, 2.5, None, 9])

Everything is tried as the pipeline does it: states travel as JSON in a partial, results as JSON in a result. Which
splits, orders and damages are tried follows from the seed alone.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from keygrouping.aggregate.base import Aggregate, State
from keygrouping.aggregate.shape import has_shape
from keygrouping.partial import Partial, Result

_LONGEST = 200
_PARTIAL = Partial(worker=0, start=0, end=1, events=1, weight=1, first=0, last=0, epoch=0, aggregates={})
_NASTY: tuple[Any, ...] = (
    *(None, True, 0, -1, 1 << 40, 1 << 63, -(1 << 64), 10**400, 0.5, -0.0, 1e308, -1e308, 5e-324),
    *("", "x", "NaN", "Infinity", "-1", "9" * 400, "\u0000", "\ud83d\ude00", [], {}, [[]], {"": None}, [None] * 5000),
)
"""What somebody else may have written where a state is read."""


class BrokenLaw(AssertionError):
    """Laws that an aggregate breaks; the message has a line for each, with an example."""


def check(aggregate: Aggregate, values: Sequence[Any], *, rounds: int = 50, seed: int = 0) -> None:
    """Tries all laws on splits of these values in random order; BrokenLaw names those that don't hold.

    `values` are what `add_many` is given; take many different ones, with None for missing fields among them, and
    numbers that are large, small, whole and not.
    """
    if broken := broken_laws(aggregate, values, LAWS, rounds=rounds, seed=seed):
        raise BrokenLaw("\n".join(f"{aggregate.name} ({aggregate.op}): {line}" for line in broken))


def broken_laws(
    aggregate: Aggregate,
    values: Sequence[Any],
    laws: Sequence[Law],
    *,
    rounds: int,
    seed: int = 0,
    enough: Callable[[], bool] = lambda: False,
) -> list[str]:
    """A line for each of these laws that doesn't hold. Each is tried once at least, then until it is `enough`."""
    found = (_broken(law, _Trial(aggregate, random.Random(seed)), values, rounds, enough) for law in laws)
    return [line for line in found if line is not None]


def _broken(law: Law, trial: _Trial, values: Sequence[Any], rounds: int, enough: Callable[[], bool]) -> str | None:
    """What is wrong with a law, None if it holds."""
    try:
        for _ in range(rounds):
            law(trial, trial.some_of(values))
            if enough():
                break
    except _Broken as broken:
        return f"{law.__name__.replace('_', ' ')}: {broken}"
    except Exception as error:
        return f"{law.__name__.replace('_', ' ')}: {type(error).__name__}: {_short(error)}"
    return None


class _Broken(Exception):
    """One example of what must not be."""


class _Trial:
    """An aggregate, and the chance that picks the examples."""

    def __init__(self, aggregate: Aggregate, chance: random.Random) -> None:
        self.it = aggregate
        self.chance = chance

    def some_of(self, values: Sequence[Any]) -> list[Any]:
        """Some of the values, possibly none, in any order."""
        return self.chance.sample(values, self.chance.randint(0, len(values)))

    def parts(self, values: Sequence[Any], most: int = 5) -> list[list[Any]]:
        """The values in a few parts, of which some may be empty."""
        parts: list[list[Any]] = [[] for _ in range(self.chance.randint(2, most))]
        for value in values:
            self.chance.choice(parts).append(value)
        return parts

    def state(self, values: Sequence[Any]) -> State:
        """The state of the values as a reader of the partial has it."""
        return self.sent(self.it.add_many(self.it.initial(), values))

    def sent(self, state: State) -> State:
        """The state after its way through a partial."""
        partial = replace(_PARTIAL, aggregates={"a": self.it.encode(state)})
        return self.it.decode(Partial.decode(partial.encode()).aggregates["a"])

    def forged(self, data: Any) -> State:
        """The state that a reader makes of JSON data that anybody may have written."""
        members = json.loads(_PARTIAL.encode()) | {"aggregates": {"a": data}}
        return self.it.decode(Partial.decode(json.dumps(members).encode()).aggregates["a"])

    def published(self, state: State) -> Any:
        """What a reader of the results sees of a state."""
        result = Result(b"", 0, 1, 1, 1, True, {"a": self.it.finish(state)})
        return Result.decode(result.encode()).aggregates["a"]

    def require_result(self, state: State, values: Sequence[Any], what: str) -> None:
        """That a state, however it came about, gives the result of the values."""
        expected, found = self.it.expected(values), self.published(state)
        if not expected.accept(found):
            told = f"{what} of {_short(values)} gives {_short(found)}"
            raise _Broken(f"{told}, but expected() says {_short(expected.value)}")

    def require_same(self, left: State, right: State, what: str) -> None:
        """That two states publish the same, to the last bit."""
        one, other = self.published(left), self.published(right)
        if one != other:
            raise _Broken(f"{what} gives {_short(one)}, and without {_short(other)}")


Law = Callable[[_Trial, list[Any]], None]


def identity(trial: _Trial, values: list[Any]) -> None:
    """Merging with the initial state changes nothing."""
    it, state = trial.it, trial.state(values)
    trial.require_same(it.merge(it.initial(), state), state, "initial() merged from the left")
    trial.require_same(it.merge(state, it.initial()), state, "initial() merged from the right")
    trial.require_result(it.initial(), [], "the initial state")


def commutativity(trial: _Trial, values: list[Any]) -> None:
    """Either side may come first; an approximate aggregate gives the same to the last bit."""
    left, right = (trial.state(part) for part in trial.parts(values, most=2))
    first, second = trial.it.merge(left, right), trial.it.merge(right, left)
    trial.require_result(first, values, "merge(left, right)")
    trial.require_result(second, values, "merge(right, left)")
    if trial.it.approximate:
        trial.require_same(first, second, "merge(left, right) instead of merge(right, left)")


def associativity(trial: _Trial, values: list[Any]) -> None:
    """Parts may be merged in any groups and any order."""
    states = [trial.state(part) for part in trial.parts(values)]
    while len(states) > 1:
        right, left = (states.pop(trial.chance.randrange(len(states))) for _ in range(2))
        states.append(trial.it.merge(left, right))
    trial.require_result(states[0], values, "merging parts in any order")


def adding(trial: _Trial, values: list[Any]) -> None:
    """One by one, all at once, or as an iterator: the state stands for the same values."""
    one_by_one = trial.it.initial()
    for value in values:
        one_by_one = trial.it.add(one_by_one, value)
    trial.require_result(one_by_one, values, "add, one by one,")
    trial.require_result(trial.it.add_many(trial.it.initial(), values), values, "add_many")
    trial.require_result(trial.it.add_many(trial.it.initial(), iter(values)), values, "add_many of an iterator")


def missing_values(trial: _Trial, values: list[Any]) -> None:
    """None is a missing field, and skipped: events without it count for nothing."""
    if len(trial.it.inputs) == 1:
        with_some = trial.chance.sample([*values, None, None], len(values) + 2)
        known = [value for value in values if value is not None]
        trial.require_result(trial.state(with_some), known, "None among the values")


def unchanged_arguments(trial: _Trial, values: list[Any]) -> None:
    """Merging changes neither side, as both may be merged again."""
    left, right = (trial.state(part) for part in trial.parts(values, most=2))
    before = [copy.deepcopy(trial.it.encode(state)) for state in (left, right)]
    trial.it.merge(left, right)
    if [trial.it.encode(state) for state in (left, right)] != before:
        raise _Broken(f"merge has changed one of its arguments, states of {_short(values)}")


def codec(trial: _Trial, values: list[Any]) -> None:
    """A state survives its way through JSON, as often as it goes; the JSON has the shape that is declared."""
    state = trial.it.add_many(trial.it.initial(), values)
    data = json.loads(json.dumps(trial.it.encode(state), allow_nan=False))
    if trial.it.shape is not None and not has_shape(data, trial.it.shape):
        raise _Broken(f"encode gives {_short(data)}, and the declared shape is {trial.it.shape}")
    once = trial.sent(state)
    trial.require_same(once, state, "decode(encode(state))")
    trial.require_same(trial.sent(once), state, "decode(encode(state)) twice")


def events_seen(trial: _Trial, values: list[Any]) -> None:
    """A state has not seen more events than there are."""
    seen = trial.it.seen(trial.state(values))
    if type(seen) is not int or not 0 <= seen <= len(values):
        raise _Broken(f"seen() is {seen!r} of {len(values)} events")


def hostile_input(trial: _Trial, values: list[Any]) -> None:
    """Data that nobody should have written are refused with a ValueError, or do no harm to what is merged with them."""
    good = trial.state(values)
    damaged = _damaged(json.loads(json.dumps(trial.it.encode(good))), trial.chance)
    try:
        state = trial.forged(damaged)
    except (ValueError, OverflowError):
        return
    except Exception as error:
        raise _Broken(f"decode of {_short(damaged)} raises {type(error).__name__} instead of ValueError") from error
    if trial.it.seen(state) > max(1, len(values)):
        return
    try:
        for merged in (state, trial.it.merge(state, good), trial.it.merge(good, state)):
            trial.published(trial.sent(merged))
    except Exception as error:
        told = f"decode takes {_short(damaged)}, which then raises {type(error).__name__}: {_short(error)}"
        raise _Broken(f"{told}; refuse it by `raise self.fault(data)`") from error


LAWS: tuple[Law, ...] = (
    identity,
    commutativity,
    associativity,
    adding,
    missing_values,
    unchanged_arguments,
    codec,
    events_seen,
    hostile_input,
)
"""All laws, in the order in which they are told."""


def _damaged(data: Any, chance: random.Random) -> Any:
    """JSON data with something else in one place, without a member, or with one too many."""
    if isinstance(data, dict) and data and chance.random() < 0.8:
        name = chance.choice(list(data))
        if chance.random() < 0.15:
            return {other: value for other, value in data.items() if other != name}
        return {**data, name: _damaged(data[name], chance)}
    if isinstance(data, list) and data and chance.random() < 0.8:
        place = chance.randrange(len(data))
        if chance.random() < 0.3:
            return [*data[:place], *data[place + 1 :], *chance.choice([[], [data[place]] * 2])]
        return [*data[:place], _damaged(data[place], chance), *data[place + 1 :]]
    return copy.deepcopy(chance.choice(_NASTY))


def _short(value: object) -> str:
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
