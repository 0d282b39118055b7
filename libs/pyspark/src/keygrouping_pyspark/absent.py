"""What frames and groups of plain Spark have, and skewed ones do not: what to do instead."""

from typing import Any

_OF_FRAMES = "call it on the frame, as Spark combines its aggregates"
_INSTEAD = {
    "pivot": (
        'make its column one of the keys, then pivot the few rows that come out: skewed(...).groupBy("user", "item")'
        '.agg(F.sum("n").alias("n")).groupBy("user").pivot("item").agg(F.first("n"))'
    ),
    "applyInArrow": "use applyInPandas(function, schema, merge=...)",
    "apply": "use applyInPandas(function, schema, merge=...)",
    "cogroup": "use skewed_join, or cogroup of the frames' own groupBy, whose hot keys stay on one task",
    **dict.fromkeys(("rollup", "cube", "groupingSets"), _OF_FRAMES),
    "join": "use skewed_join(left, right, on)",
}


def absent(of: object, name: str, plain: type) -> Any:
    """What `__getattr__` gives: always AttributeError, which names the way if `plain`, Spark's own, has it."""
    if name.startswith("_") or name in dir(of) or not hasattr(plain, name):
        return object.__getattribute__(of, name)
    there = [each for each in vars(type(of)) if not each.startswith("_") and hasattr(plain, each)]
    way = _INSTEAD.get(name, f"call it on a plain {plain.__name__}")
    raise AttributeError(f"skewed has no {name}: {way}; it has {', '.join(there)}", name=name, obj=of)
