"""The files of experiments: figures, picture and text of each, and a page of all."""

import csv
from pathlib import Path

from keygrouping.experiment.markdown import section
from keygrouping.experiment.model import Experiment, Outcome
from keygrouping.experiment.registry import ExperimentError, names

_HEAD = """# Experiments

Tables and figures of five papers, drawn anew by `keygrouping experiment all --output {folder}`, which wrote this page.
One experiment by itself, on more or fewer events: `keygrouping experiment NAME --events N`.

- The streams are generated with the published statistics (messages, keys, share of the most frequent key); they are not
  the original dumps, but other samples of the same kind.
- Time is virtual. A worker takes a fixed time for each event and aggregators one for each partial; there is no network,
  no memory wall, no garbage collection. So throughputs and latencies are those of an ideal cluster, to be compared
  between groupings.
- Where a paper has a figure without printing its values, its statements on it are compared.
- Ratios far from 1 and statements that don't hold are left as they came out, with what is known of the reason.
"""


def prepare(folder: Path) -> None:
    """Make a folder if need be; ExperimentError if that can't be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"can't write to {error.filename}: {error.strerror}") from error


def write(experiment: Experiment, outcome: Outcome, folder: Path, events: int, seed: int) -> None:
    """Write NAME.csv, NAME.png and NAME.md into a folder; ExperimentError if that can't be."""
    from keygrouping.experiment.chart import draw

    try:
        _write_rows(outcome, folder / f"{experiment.name}.csv")
        draw(outcome.panels, folder / f"{experiment.name}.png")
        (folder / f"{experiment.name}.md").write_text(section(experiment, outcome, events, seed), "utf-8")
    except OSError as error:
        raise ExperimentError(f"can't write to {error.filename}: {error.strerror}") from error


def page_of(folder: Path) -> Path:
    """Where the page of all experiments in a folder stands: beside it, `docs/experiments.md` for `docs/experiments`."""
    return folder.absolute().parent / f"{folder.name}.md"


def write_page(folder: Path) -> None:
    """Write the page of all experiments whose texts are in a folder; ExperimentError if that can't be."""
    try:
        sections = [_linked(text, folder) for name in names() if (text := folder / f"{name}.md").exists()]
        page_of(folder).write_text("\n".join([_HEAD.format(folder=folder), *sections]), "utf-8")
    except OSError as error:
        raise ExperimentError(f"can't write to {error.filename}: {error.strerror}") from error


def _linked(text: Path, folder: Path) -> str:
    """The text on an experiment, with links that hold from the page."""
    return text.read_text("utf-8").replace(f"]({text.stem}.", f"]({folder.name}/{text.stem}.")


def _write_rows(outcome: Outcome, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, outcome.rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(outcome.rows)
