"""Draws those pictures of docs/images that are named in `DRAWINGS`: `python docs/images/concepts.py`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from keygrouping.grouping import Planned
from keygrouping.simulate import create_sources
from keygrouping.workload import workload
from numpy.typing import NDArray

EVENTS, INTERVAL, WORKERS, SHARE = 100_000, 10_000, 10, 40
STYLE = "text{font:13px sans-serif;fill:#222}.title{font-weight:bold;font-size:15px}.small{font-size:12px;fill:#555}"
GREY, HOT, BLUE = "#b9c2cc", "#e08a3c", "#7f8fa3"


def svg(width: int, height: int, title: str, shapes: Sequence[str]) -> str:
    """A drawing on white, so that it can be read on dark pages too."""
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">'
        f'<style>{STYLE}</style>\n<rect width="{width}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def loads(grouping: str) -> NDArray[np.float64]:
    """Shares of the workers, shape (2, W): of the hot key, and of all others; the first interval is left out."""
    stream = workload(f"country-skew-{SHARE}", EVENTS, 0)
    (source,) = create_sources(grouping, WORKERS, 1)
    counts, seen = np.zeros((2, WORKERS)), 0
    for chunk in stream.chunks():
        for begin in range(0, len(chunk.keys), INTERVAL):
            keys = chunk.keys[begin : begin + INTERVAL]
            workers = source.route_batch(stream.table.hashes(source.seeds)[keys], None, seen / EVENTS)
            seen += len(keys)
            if seen > INTERVAL:
                hot = np.bincount(chunk.keys).argmax() == keys
                counts[0] += np.bincount(workers[hot], minlength=WORKERS)
                counts[1] += np.bincount(workers[~hot], minlength=WORKERS)
            if isinstance(source, Planned):
                source.apply(source.plan([source.statistics()]))
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares


def bars(x: int, title: str, shares: NDArray[np.float64], note: str) -> list[str]:
    """Workers as bars: the hot key on top of the others, and the average as a line."""
    base, scale, step = 210, 300, 32
    shapes = [f'<text x="{x}" y="26" class="title">{title}</text>', f'<text x="{x}" y="44" class="small">{note}</text>']
    for worker in range(WORKERS):
        left, y = x + worker * step, float(base)
        for share, colour in zip((shares[1, worker], shares[0, worker]), (GREY, HOT), strict=True):
            y -= share * scale
            shapes.append(f'<rect x="{left}" y="{y:.1f}" width="24" height="{share * scale:.1f}" fill="{colour}"/>')
        shapes.append(f'<text x="{left + 12}" y="{base + 17}" text-anchor="middle" class="small">{worker}</text>')
    level = base - scale / WORKERS
    shapes.append(
        f'<line x1="{x - 6}" x2="{x + WORKERS * step}" y1="{level}" y2="{level}" stroke="#222" stroke-dasharray="6 4"/>'
    )
    return shapes


def before_after() -> str:
    """The same stream by key hashing and by level-fill."""
    shapes: list[str] = []
    for x, name, title in ((24, "key", "Before: key grouping"), (404, "level-fill", "After: level-fill")):
        shares = loads(name)
        most = shares.sum(axis=0).max()
        pairs = f"busiest worker: {most:.1%} of all events, λ = {most * WORKERS:.2f}"
        shapes += bars(x, title, shares, pairs)
    shapes.append(
        f'<text x="24" y="252" class="small">{WORKERS} workers, one key with {SHARE} % of the events (orange); '
        "the dashed line is the average</text>"
    )
    return svg(760, 266, "Load of ten workers before and after", shapes)


def box(x: int, y: int, width: int, text: str, colour: str = "#fff", note: str = "") -> str:
    """A named box; topics are grey, programs white."""
    middle = x + width / 2
    lines = f'<text x="{middle}" y="{y + (20 if note else 25)}" text-anchor="middle">{text}</text>'
    if note:
        lines += f'<text x="{middle}" y="{y + 34}" text-anchor="middle" class="small">{note}</text>'
    return f'<rect x="{x}" y="{y}" width="{width}" height="40" rx="5" fill="{colour}" stroke="#555"/>{lines}'


def arrow(x1: float, y1: float, x2: float, y2: float, dashed: bool = False) -> str:
    """A line that ends in a head."""
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#555" marker-end="url(#head)"{dash}/>'


HEAD = (
    '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>'
)


def pipeline() -> str:
    """Programs and topics from the event to the result."""
    topic = "#e6eaee"
    shapes = [
        HEAD,
        box(10, 90, 84, "events", topic, "your topic"),
        box(126, 90, 84, "router"),
        box(242, 90, 96, "routed", topic, "part. = worker"),
        *(box(370, 30 + 60 * n, 88, f"worker {n}") for n in range(3)),
        box(490, 90, 84, "partials", topic),
        box(602, 90, 88, "aggregator"),
        box(602, 170, 88, "results", topic),
        arrow(94, 110, 124, 110),
        arrow(210, 110, 240, 110),
        *(arrow(338, 110, 368, 50 + 60 * n) for n in range(3)),
        *(arrow(458, 50 + 60 * n, 488, 110) for n in range(3)),
        arrow(574, 110, 600, 110),
        arrow(646, 130, 646, 168),
        box(100, 170, 136, "late, dead-letters", topic),
        arrow(168, 130, 168, 168, dashed=True),
        box(126, 14, 84, "store", "#fff", "Redis"),
        arrow(168, 88, 168, 56, dashed=True),
        box(490, 14, 84, "observer"),
        arrow(532, 88, 532, 56, dashed=True),
        box(602, 14, 88, "distribution", topic),
        arrow(574, 34, 600, 34, dashed=True),
    ]
    return svg(702, 224, "From event to result", shapes)


def event_time() -> str:
    """The watermark of each stage, and when a window closes."""
    shapes = [
        HEAD,
        '<text x="20" y="26" class="title">A window is final once the watermark of every worker is past its end</text>',
    ]
    rows = (
        ("events 0", 520, BLUE, "router has seen up to here"),
        ("events 1", 430, BLUE, "the slowest input partition"),
        ("worker 0", 400, HOT, "its minimum less the lateness"),
        ("worker 1", 340, HOT, "not yet there: it holds the window back"),
    )
    for number, (name, end, colour, note) in enumerate(rows):
        y = 50 + number * 36
        shapes.append(f'<text x="20" y="{y + 15}">{name}</text>')
        shapes.append(f'<rect x="100" y="{y}" width="{end - 100}" height="20" fill="{colour}"/>')
        shapes.append(f'<text x="{max(end, 370) + 8}" y="{y + 15}" class="small">{note}</text>')
    shapes.append('<line x1="370" x2="370" y1="44" y2="206" stroke="#222" stroke-dasharray="6 4"/>')
    shapes.append('<text x="370" y="222" text-anchor="middle" class="small">end of the window</text>')
    shapes.append(arrow(100, 240, 560, 240) + '<text x="568" y="244" class="small">event time</text>')
    return svg(760, 256, "Event time of the stages", shapes)


def log(x: int, y: int, name: str, records: Sequence[tuple[str, str]]) -> str:
    """A topic's partition: its records from left to right, each with its text and colour."""
    shapes = [f'<text x="{x}" y="{y - 7}" class="small">{name}</text>']
    for number, (text, colour) in enumerate(records):
        left = x + number * 46
        shapes.append(f'<rect x="{left}" y="{y}" width="44" height="26" rx="3" fill="{colour}" stroke="#555"/>')
        shapes.append(f'<text x="{left + 22}" y="{y + 17}" text-anchor="middle">{text}</text>')
    return "".join(shapes)


def moved_key() -> str:
    """A key k that is handed over to a slot with its state, and called home again."""
    key, other, state, call = ("k", HOT), ("", GREY), ("state", "#9fc5e8"), ("call", "#fff")
    shapes = [
        HEAD,
        '<text x="20" y="26" class="title">Away: in the slot the state comes before the events</text>',
        log(20, 60, "input", (key, other, key, key, other)),
        box(290, 53, 130, "input's owner", note="handles the others"),
        log(470, 60, "slot", (state, key, key)),
        box(670, 53, 120, "slot's owner", note="handles k"),
        arrow(252, 73, 288, 73),
        arrow(420, 73, 466, 73),
        arrow(610, 73, 668, 73),
        '<text x="20" y="146" class="title">Home again: the call comes behind the events, the state answers</text>',
        log(20, 180, "input", (key, other, key)),
        box(290, 173, 130, "input's owner", note="holds k until then"),
        log(470, 180, "slot", (key, key, call)),
        box(670, 173, 120, "slot's owner", note="handles k first"),
        log(318, 262, "", (state,)),
        '<text x="376" y="268" class="small">to the changelog of the input</text>',
        arrow(160, 193, 288, 193),
        arrow(420, 193, 466, 193),
        arrow(610, 193, 668, 193),
        '<path d="M730,213 L730,275 L368,275" fill="none" stroke="#555" marker-end="url(#head)"/>',
        arrow(340, 260, 340, 216),
    ]
    return svg(810, 300, "A key goes to a slot and home again", shapes)


def small(x: int, y: int, text: str, anchor: str = "start") -> str:
    """A line of small text."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="small">{text}</text>'


def shared_key() -> str:
    """A hot key k whose surplus goes to slots that other members read beside their own inputs."""
    key, other = ("k", HOT), ("", GREY)
    shapes = [
        HEAD,
        '<text x="20" y="26" class="title">The surplus of a hot key goes to slots, which others read beside their own '
        "partitions</text>",
        small(
            20,
            46,
            "The surplus is what is too much for member 0. With exactly_once an event goes in the transaction that "
            "commits its offset.",
        ),
        log(20, 190, "input, partition 0", (key, other, key, key, key)),
        small(20, 236, "Keys that are not hot (grey) are never"),
        small(20, 252, "written: they stay with their member"),
        box(290, 183, 130, "member 0", note="handles the rest"),
        log(510, 90, "input, partition 1", (other, other)),
        log(510, 144, "slot 1", (key, key)),
        small(510, 207, "slots: partitions of &lt;app&gt;.overflow"),
        log(510, 240, "slot 2", (key,)),
        log(510, 294, "input, partition 2", (other, other)),
        box(660, 110, 110, "member 1", note="owner of slot 1"),
        box(660, 260, 110, "member 2", note="owner of slot 2"),
        arrow(252, 203, 288, 203),
        arrow(420, 200, 506, 160),
        arrow(420, 206, 506, 250),
        small(448, 158, "surplus of k", "middle"),
        arrow(606, 103, 658, 124),
        arrow(606, 157, 658, 136),
        arrow(560, 253, 658, 274),
        arrow(606, 307, 658, 286),
        box(
            290,
            350,
            500,
            "&lt;app&gt;.sharing",
            "#e6eaee",
            "each tells its load, its lanes and its hot keys; all make the same plan",
        ),
        arrow(355, 223, 355, 348, dashed=True),
        arrow(715, 300, 715, 348, dashed=True),
        '<path d="M770,130 L782,130 L782,348" fill="none" stroke="#555" stroke-dasharray="5 4" '
        'marker-end="url(#head)"/>',
    ]
    return svg(810, 404, "The surplus of a hot key goes to slots", shapes)


def merged_state() -> str:
    """Partial states of a key from two members, and the state that they become."""
    key, other, blue = ("k", HOT), ("", GREY), "#9fc5e8"
    shapes = [
        HEAD,
        '<text x="20" y="26" class="title">Each call begins with a new state; what calls leave becomes one</text>',
        log(20, 70, "input", (key, key, other, key)),
        log(20, 140, "slot", (key, key)),
        box(226, 63, 100, "member 0", note="3 calls of k"),
        box(226, 133, 100, "member 1", note="2 calls of k"),
        log(364, 105, "&lt;app&gt;.&lt;topic&gt;.partials", (("3", blue), ("2", blue))),
        box(536, 98, 110, "k's owner", note="merges 3 and 2"),
        log(686, 70, "state: changelog", (("5", blue),)),
        log(686, 140, "what is published", (("5", "#fff"),)),
        arrow(206, 83, 224, 83),
        arrow(114, 153, 224, 153),
        arrow(326, 83, 360, 110),
        arrow(326, 153, 360, 126),
        arrow(458, 118, 534, 118),
        arrow(646, 110, 682, 86),
        arrow(646, 126, 682, 150),
        small(
            20,
            203,
            "The state is a count here. A partial is written in the transaction that commits its events, and merged",
        ),
        small(
            20, 219, "in the one that commits the partial. The owner is the member that has k's partition of partials."
        ),
    ]
    return svg(810, 234, "Partial states of a key become one", shapes)


DRAWINGS = {
    "before-after": before_after,
    "pipeline": pipeline,
    "event-time": event_time,
    "moved-key": moved_key,
    "shared-key": shared_key,
    "merged-state": merged_state,
}


if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (Path(__file__).parent / f"{name}.svg").write_text(draw())
