"""Tables of keys: a position for each key, in the order in which keys are met."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.hashing import hash_keys, kafka_hashes

_BLOCK = 65_536
Item = TypeVar("Item", bound=np.generic)


class KeyTable(ABC):
    """Keys by their positions 0 to len - 1; the position of a key never changes."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[int, ...], tuple[NDArray[np.int64], int]] = {}
        self._kafka_hashes: NDArray[np.uint32] = np.empty(0, np.uint32)

    @abstractmethod
    def __len__(self) -> int:
        """Number of keys met so far."""

    @abstractmethod
    def names(self, start: int, stop: int) -> Sequence[bytes]:
        """The keys at the positions start to stop - 1."""

    def name(self, index: int) -> bytes:
        """The key at a position."""
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} keys, not one at {index}")
        return self.names(index, index + 1)[0]

    def hashes(self, seeds: tuple[int, ...]) -> NDArray[np.int64]:
        """The hashes of all keys by each of the seeds, shape (len, len(seeds)), see `keygrouping.hashing.hash_keys`.

        Each key is hashed once: a later call adds the keys that are new. The array is not to be written to.
        """
        size = len(self)
        hashes, known = self._hashes.get(seeds, (np.empty((0, len(seeds)), np.int64), 0))
        if size > len(hashes):
            grown = np.empty((max(size, 2 * len(hashes)), len(seeds)), np.int64)
            grown[:known] = hashes[:known]
            hashes = grown
        for start in range(known, size if seeds else known, _BLOCK):
            stop = min(start + _BLOCK, size)
            hashes[start:stop] = hash_keys(self.names(start, stop), seeds)
        self._hashes[seeds] = (hashes, size)
        return hashes[:size]

    def kafka_hashes(self) -> NDArray[np.uint32]:
        """What Kafka's partitioner goes by, of all keys, see `keygrouping.hashing.kafka_hashes`; not to be written to.

        Each key is hashed once, too.
        """
        known, size = len(self._kafka_hashes), len(self)
        if size > known:
            starts = range(known, size, _BLOCK)
            new = [kafka_hashes(self.names(start, min(start + _BLOCK, size))) for start in starts]
            self._kafka_hashes = np.concatenate([self._kafka_hashes, *new])
        return self._kafka_hashes


class ModelKeys(KeyTable):
    """Keys that a model draws by numbers."""

    @abstractmethod
    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of keys by their numbers, the unknown ones added in their order; the same shape."""


class FixedKeys(ModelKeys):
    """Keys that are all known beforehand; they have their places in the list as positions."""

    def __init__(self, names: Sequence[bytes]) -> None:
        super().__init__()
        self._names = tuple(names)

    def __len__(self) -> int:
        return len(self._names)

    def names(self, start: int, stop: int) -> Sequence[bytes]:
        return self._names[start:stop]

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of keys by their places in the list: these places."""
        return numbers


class ListedKeys(ModelKeys):
    """Keys of a list, by their places there; those that are met are added as they come."""

    def __init__(self, names: Sequence[bytes]) -> None:
        super().__init__()
        self._listed = tuple(names)
        self._places = np.full(len(names), -1)
        self._met: list[int] = []

    def __len__(self) -> int:
        return len(self._met)

    def names(self, start: int, stop: int) -> Sequence[bytes]:
        return [self._listed[number] for number in self._met[start:stop]]

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of keys by their places in the list, the unknown ones added in their order."""
        new, first = np.unique(numbers[self._places[numbers] < 0], return_index=True)
        new = new[np.argsort(first)]
        self._places[new] = np.arange(len(self), len(self) + len(new))
        self._met.extend(new.tolist())
        return self._places[numbers]


class NamedKeys(KeyTable):
    """Keys that are any bytes; new ones are added as they come."""

    def __init__(self) -> None:
        super().__init__()
        self._index = _Index()

    def __len__(self) -> int:
        return len(self._index.names)

    def names(self, start: int, stop: int) -> Sequence[bytes]:
        return self._index.names[start:stop]

    def positions(self, names: Sequence[bytes]) -> NDArray[np.int64]:
        """The positions of these keys, the unknown ones added in their order; shape (len(names),)."""
        return np.fromiter(map(self._index.__getitem__, names), np.int64, len(names))


class _Index(dict[bytes, int]):
    """Positions by key, where a missing key gets the next position."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[bytes] = []

    def __missing__(self, name: bytes) -> int:
        self[name] = position = len(self.names)
        self.names.append(name)
        return position


class NumberedKeys(ModelKeys):
    """Keys that are whole numbers from 0 on behind a prefix, such as `key-17`; new ones are added as they come.

    Takes 4 bytes per number up to the largest met and 8 bytes per distinct one.
    """

    def __init__(self, prefix: bytes) -> None:
        super().__init__()
        self._prefix = prefix
        self._places = np.zeros(1024, np.int32)
        """Position of a number plus 1; 0: not met yet."""
        self._numbers = np.zeros(1024, np.int64)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def names(self, start: int, stop: int) -> Sequence[bytes]:
        return self.keys(self._numbers[start : min(stop, self._size)])

    def keys(self, numbers: NDArray[np.int64]) -> list[bytes]:
        """The keys of numbers, whether they were met or not."""
        return [b"%b%d" % (self._prefix, number) for number in numbers.tolist()]

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of these numbers, the unknown ones added in their order; the same shape."""
        if numbers.size and (largest := int(numbers.max())) >= len(self._places):
            self._places = _grown(self._places, 2 * largest)  # pages that are not touched take no memory
        places = self._places[numbers]
        is_new = places == 0
        if is_new.any():
            self._add(numbers[is_new])
            places[is_new] = self._places[numbers[is_new]]
        return places.astype(np.int64) - 1

    def _add(self, numbers: NDArray[np.int64]) -> None:
        order = np.arange(len(numbers), dtype=np.int32)
        self._places[numbers[::-1]] = order[::-1]  # of equal numbers the first is written last, and stays
        added = numbers[self._places[numbers] == order]
        size = self._size + len(added)
        if size > len(self._numbers):
            self._numbers = _grown(self._numbers, 2 * size)
        self._numbers[self._size : size] = added
        self._places[added] = np.arange(self._size + 1, size + 1)
        self._size = size


def _grown(array: NDArray[Item], size: int) -> NDArray[Item]:
    """The array with zeros behind it up to this size."""
    grown = np.zeros(size, array.dtype)
    grown[: len(array)] = array
    return grown
