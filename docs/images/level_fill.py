"""Draws docs/images/level-fill-*.svg: `python docs/images/level_fill.py`."""

from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT, BASE, COLUMN, GAP = 760, 330, 270, 54, 18
COLOURS = {"cold": "#b9c2cc", "rock": "#7f8fa3", "hot": "#e08a3c", "hot 2": "#c25450", "room": "none"}
Part = tuple[str, float]


def columns(title: str, workers: Sequence[Sequence[Part]], level: float, label: str, notes: Sequence[str]) -> str:
    """Workers as columns of parts (kind, height), a dashed line at the level, and notes beside."""
    shapes = [f'<text x="20" y="28" class="title">{title}</text>']
    for worker, parts in enumerate(workers):
        x, y = 40 + worker * (COLUMN + GAP), float(BASE)
        for kind, height in parts:
            y -= height
            shapes.append(
                f'<rect x="{x}" y="{y:.0f}" width="{COLUMN}" height="{height:.0f}" fill="{COLOURS[kind]}" '
                'stroke="#fff" stroke-width="1.5"/>'
            )
        shapes.append(f'<text x="{x + COLUMN / 2}" y="{BASE + 18}" text-anchor="middle">{worker}</text>')
    right = 40 + len(workers) * (COLUMN + GAP)
    y = BASE - level
    shapes.append(f'<line x1="28" x2="{right}" y1="{y}" y2="{y}" stroke="#222" stroke-dasharray="6 4"/>')
    shapes.append(f'<text x="{right + 8}" y="{y + 4}">{label}</text>')
    shapes += [f'<text x="{right + 8}" y="{y + 40 + 20 * line}">{note}</text>' for line, note in enumerate(notes)]
    shapes.append(f'<text x="28" y="{BASE + 40}">worker</text>')
    return document(title, shapes)


def document(title: str, shapes: Sequence[str]) -> str:
    """The picture as SVG."""
    style = "text{font:13px sans-serif;fill:#222}.title{font-weight:bold;font-size:15px}"
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
        f'<style>{style}</style>\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n{body}\n</svg>\n'
    )


COLD = (52, 40, 66, 48, 58, 44)
ROCKS = (60, 25, 70, 0, 40, 82)
LEVEL = 180.0


def plan() -> str:
    """Two hot keys poured over what the cold hashes and the rocks have left."""
    rooms = [LEVEL - cold - rock for cold, rock in zip(COLD, ROCKS, strict=True)]
    first = 0.62 * sum(rooms)
    workers: list[list[Part]] = []
    for cold, rock, room in zip(COLD, ROCKS, rooms, strict=True):
        amount = min(first, room)
        first -= amount
        parts: list[Part] = [("cold", cold), ("rock", rock), ("hot", amount), ("hot 2", room - amount)]
        workers.append([part for part in parts if part[1] > 0])
    notes = (
        "grey: cold hashes",
        "dark: rocks, whole",
        "orange, red: two hot keys,",
        "on 4 and 3 workers;",
        "only one is shared",
    )
    return columns("A plan: rocks first, hot keys poured above them", workers, LEVEL, "water level", notes)


def routing() -> str:
    """An event of a hot key whose member is full goes to the next one below the level."""
    heights = (150, 150, 150, 118, 150, 92)
    workers: list[list[Part]] = [
        [("cold", 0.5 * height), ("hot", 0.5 * height)] if number in (1, 2, 3) else [("cold", height)]
        for number, height in enumerate(heights)
    ]
    notes = (
        "the level is the average load",
        "hot key on 1, 2, 3:",
        "1 and 2 are full, 3 takes it;",
        "if 3 were full, too, the key",
        "would get worker 5",
    )
    return columns("Routing: fill a member to the level, then the next", workers, 150.0, "level", notes)


SECOND, LEFT, LANES = 31, 118, {"router-0": 92, "store": 162, "router-1": 232}
FIRST_EVENT, BOUNDARIES, NEW_HOT_KEY = 3.0, (10.0, 20.0), 13.2
INSIDE = (*(FIRST_EVENT + 10 * part for part in (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)), 15.0)
"""Seconds at which plans are made inside of an interval."""


def live() -> str:
    """Two routers that send their counts to the store, and take the plan from there."""
    title = "Two routers, one plan: at the end of each interval, and earlier where it is wanted"

    def at(second: float) -> float:
        return LEFT + second * SECOND

    shapes = [f'<text x="20" y="28" class="title">{title}</text>']
    for name, y in LANES.items():
        shapes.append(f'<text x="20" y="{y + 4}">{name}</text>')
        shapes.append(f'<line x1="{LEFT}" x2="{at(20.4):.0f}" y1="{y}" y2="{y}" stroke="#7f8fa3" stroke-width="2"/>')
    for second, colour in (*((second, "#e08a3c") for second in INSIDE), *((second, "#222") for second in BOUNDARIES)):
        x, store = at(second), LANES["store"]
        shapes.append(
            f'<path d="M{x:.0f} {LANES["router-0"]}V{store}M{x:.0f} {LANES["router-1"]}V{store}" stroke="{colour}"/>'
        )
        shapes.append(f'<circle cx="{x:.0f}" cy="{store}" r="4" fill="{colour}"/>')
    for second in (0, 5, 10, 15, 20):
        shapes.append(f'<text x="{at(second):.0f}" y="{BASE + 4}" text-anchor="middle">{second} s</text>')
    notes = ((FIRST_EVENT, "first event"), (NEW_HOT_KEY, "another hot key"))
    for second, note in notes:
        x = at(second)
        shapes.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="62" y2="248" stroke="#c25450" stroke-dasharray="3 3"/>')
        shapes.append(f'<text x="{x:.0f}" y="54" text-anchor="middle">{note}</text>')
    shapes.append(
        f'<text x="20" y="{BASE + 36}">black: the plan of a whole interval; orange: of what has been seen so far</text>'
    )
    return document(title, shapes)


def main() -> None:
    folder = Path(__file__).parent
    for name, picture in (("plan", plan()), ("routing", routing()), ("live", live())):
        (folder / f"level-fill-{name}.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
