"""The keys that one plan of all sources has made wide, for groupings that split keys by such plans."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDE_KEY = np.dtype(
    [
        ("hash", np.int64),
        ("changed", np.float64),
        ("since", np.float64),
        ("width", np.int32),
        ("used", np.int32),
    ],
    align=True,
)
"""One key: its hash, the times (seconds) of the last change of its width and since when it is hot, its width, whether
the slot is in use."""

_COLUMNS = ("hash", "width", "changed", "since")


class WideKeys:
    """The widths that the plan in force gives to its keys, all others are cold. Memory: 32 bytes x 2 to 4 x keys."""

    def __init__(self, keys: NDArray[Any] | None = None) -> None:
        count = 0 if keys is None else len(keys)
        self.table: NDArray[Any] = np.zeros(1 << (2 * count).bit_length(), WIDE_KEY)
        """A hash table, see `keygrouping._probing`, of WIDE_KEY."""
        self._count = count
        if keys is not None and count:
            from keygrouping._probing import lay_out

            lay_out(self.table, keys)

    def __len__(self) -> int:
        return self._count

    @property
    def hashes(self) -> NDArray[np.int64]:
        """All keys."""
        hashes: NDArray[np.int64] = self.table["hash"][self.table["used"] != 0]
        return hashes

    def known(self) -> NDArray[Any]:
        """A copy of all keys, the widest first, equal ones by hash."""
        used: NDArray[Any] = self.table[self.table["used"] != 0]
        return used[np.lexsort((used["hash"], -used["width"]))]

    def find(self, hashed: int) -> Any | None:
        """The item of a key, or None."""
        from keygrouping._probing import find

        item = self.table[find(self.table, hashed)]
        return item if item["used"] else None

    def next(self, widths: Mapping[int, int], now: float, cold_width: int) -> "WideKeys":
        """Those with other widths; keys that had theirs before keep its times."""
        keys = np.zeros(len(widths), WIDE_KEY)
        keys["hash"], keys["width"], keys["used"] = list(widths), list(widths.values()), 1
        keys["changed"] = keys["since"] = now
        for key in keys:
            if (before := self.find(int(key["hash"]))) is not None:
                key["changed"] = before["changed"] if before["width"] == key["width"] else now
                key["since"] = before["since"] if before["width"] > cold_width else now
        return WideKeys(keys)

    def resized(self, widths: NDArray[np.integer]) -> "WideKeys":
        """The same keys with these widths, in the order of `known`."""
        keys = self.known()
        keys["width"] = widths
        return WideKeys(keys)

    def widths(self, cold_width: int) -> dict[int, int]:
        """The width of every hot key by its hash."""
        known = self.known()
        hot = known[known["width"] > cold_width]
        return dict(zip(hot["hash"].tolist(), hot["width"].tolist(), strict=True))

    def plan(self, after: "WideKeys", workers: int, cold_width: int, now: float) -> dict[str, Any]:
        """What becomes of these keys as the rows of a plan: `keys` are [hash, width, time of change, hot since].

        Times are seconds from the moment of planning, so never above 0.
        """
        before, hot = self.widths(cold_width), after.widths(cold_width)
        moved = [key for key in before.keys() | hot.keys() if before.get(key) != hot.get(key)]
        figures = {"moved_keys": len(moved), "moved_state": 0.0, "hot_keys": len(hot)}
        return {"workers": workers, "keys": after.to_data(now), **figures}

    def to_data(self, origin: float = 0.0) -> list[list[Any]]:
        """All keys as plain JSON data, their times counted from `origin`."""
        known = self.known()
        known["changed"] -= origin
        known["since"] -= origin
        return list(map(list, zip(*(known[name].tolist() for name in _COLUMNS), strict=True)))

    @classmethod
    def from_data(cls, rows: Iterable[Sequence[Any]], workers: int, origin: float = 0.0) -> "WideKeys":
        """Those that gave `to_data`; a ValueError or TypeError if they are none for so many workers."""
        items = list(rows)
        keys = np.zeros(len(items), WIDE_KEY)
        try:
            for at, name in enumerate(_COLUMNS):
                keys[name] = [item[at] for item in items]
        except (IndexError, OverflowError) as error:
            raise ValueError(f"not a key of a plan: {error}") from error
        if len(np.unique(keys["hash"])) != len(keys):
            raise ValueError("a plan with two widths for one key")
        if np.any((keys["width"] < 1) | (keys["width"] > workers)):
            raise ValueError(f"not a plan for {workers} workers")
        if not np.all(np.isfinite(keys["changed"])) or not np.all(np.isfinite(keys["since"])):
            raise ValueError("a key of a plan without times")
        keys["used"] = 1
        keys["changed"] += origin
        keys["since"] += origin
        return cls(keys)
