"""The files of experiments: figures, picture and page of each, and an index of all."""

import csv
from pathlib import Path

from keygrouping_experiments.chart import draw
from keygrouping_experiments.lab import Lab
from keygrouping_experiments.markdown import page
from keygrouping_experiments.model import Experiment, Outcome
from keygrouping_experiments.registry import ExperimentError, names

_HEAD = """# Experiments

Tables and figures of the papers, redrawn by `keygrouping-experiment all --output {folder}`, which wrote this index
and its pages. One experiment, on more or fewer events: `keygrouping-experiment NAME --events N`.

- The streams are generated with the published statistics (messages, keys, share of the most frequent key); they are not
  the original dumps, but other samples of the same kind.
- Time is virtual. A worker takes a fixed time for each event and aggregators one for each partial; there is no network,
  no memory limit, no garbage collection. So throughputs and latencies are those of an ideal cluster, to be compared
  between groupings.
- Where a paper has a figure without printing its values, its statements on it are compared.
- Ratios far from 1 and statements that don't hold are shown as measured, with the reason as far as it is known.

| experiment | what it shows | source |
| --- | --- | --- |
"""


def prepare(folder: Path) -> None:
    """Make a folder if need be; ExperimentError if that can't be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"can't write to {error.filename}: {error.strerror}") from error


def write(experiment: Experiment, outcome: Outcome, folder: Path, lab: Lab) -> None:
    """Write NAME.csv, NAME.png and NAME.md into a folder; ExperimentError if that can't be."""
    try:
        _write_rows(outcome, folder / f"{experiment.name}.csv")
        draw(outcome.panels, folder / f"{experiment.name}.png")
        (folder / f"{experiment.name}.md").write_text(page(experiment, outcome, lab), "utf-8")
    except OSError as error:
        raise ExperimentError(f"can't write to {error.filename}: {error.strerror}") from error


def index_of(folder: Path) -> Path:
    """Where the index of a folder stands: beside it, `docs/experiments.md` for `docs/experiments`."""
    return folder.absolute().parent / f"{folder.name}.md"


def write_index(folder: Path) -> None:
    """Write the index of all experiments whose pages are in a folder; ExperimentError if that can't be."""
    try:
        rows = [_row(page, folder) for name in names() if (page := folder / f"{name}.md").exists()]
        index_of(folder).write_text(_HEAD.format(folder=folder) + "\n".join(rows) + "\n", "utf-8")
    except OSError as error:
        raise ExperimentError(f"can't write to {error.filename}: {error.strerror}") from error


def _row(page: Path, folder: Path) -> str:
    """The row of an experiment in the index, by what its page says of itself."""
    title, _, source = page.read_text("utf-8").split("\n")[:3]
    name, _, shown = title.removeprefix("# ").partition(": ")
    return f"| [{name}]({folder.name}/{page.name}) | {shown} | {source.removeprefix('Source: ').removesuffix('.')} |"


def _write_rows(outcome: Outcome, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, outcome.rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(outcome.rows)
