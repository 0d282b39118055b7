"""Laws of the frame of experiments: published figures, selections, texts, pictures, files, the command."""

import csv
import math
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.cli import progress
from keygrouping.simulate import create_sources
from keygrouping.version import version
from keygrouping_experiments import Experiment, ExperimentError, Lab, Outcome, experiment, names, registry
from keygrouping_experiments.chart import draw
from keygrouping_experiments.cli import main
from keygrouping_experiments.markdown import number, page
from keygrouping_experiments.model import Claim, Comparison, Line, Panel, Row
from keygrouping_experiments.published import compare, published
from keygrouping_experiments.rows import line, value, values
from keygrouping_experiments.writer import index_of, prepare, write, write_index

ROWS: tuple[Row, ...] = (
    {"case": "a", "W": 5, "λ": 1.5},
    {"case": "a", "W": 10, "λ": 2.5},
    {"case": "b", "W": 5, "λ": 1.0},
)
PANELS = (
    Panel("over W", "W", "λ", (Line("a", (5, 10), (1.5, 2.5)), Line("b", (5,), (1.0,))), log_x=True, log_y=True),
    Panel("bars", "", "λ", (Line("a", (0, 1), (1.5, 2.5)),), categories=("5", "10")),
)
OUTCOME = Outcome(
    ROWS,
    PANELS,
    (Comparison("a", "λ", 2.0, 1.5, "table 1"),),
    (Claim("b is better", "section 2", "1.0 to 1.5", True), Claim("a is best", "section 3", "1.5 | 1.0", False)),
)
SAMPLE = Experiment(
    "sample", "a sample", "A paper, table 1", "What is run.", "Why it differs.", 1000, lambda _: OUTCOME
)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class TestPublished:
    def rows(self) -> list[dict[str, str]]:
        text = resources.files("keygrouping_experiments").joinpath("published.csv").read_text("utf-8")
        return list(csv.DictReader(text.splitlines()))

    def test_each_figure_stands_once_with_a_source_and_belongs_to_an_experiment(self) -> None:
        rows = self.rows()
        assert {row["experiment"] for row in rows} <= set(names())
        assert all(row["source"] and math.isfinite(float(row["value"])) for row in rows)
        figures = Counter((row["experiment"], row["case"], row["measure"]) for row in rows)
        assert set(figures.values()) == {1}

    def test_figures_are_those_of_the_papers(self) -> None:
        assert published("dkg-table-3")["DKG", "throughput (events/s)"] == (4529, "table 3")
        assert published("pkg-imbalance")["WP, W=50", "PKG"] == (2.7e-2, "table II")
        assert published("pkg-imbalance")["TW, W=5", "On-Greedy"] == (7.2e-9, "table II")
        assert published("dkg-workers")["W=50", "most workers of a key"].value == 30

    def test_derived_figures_follow_from_the_printed_ones(self) -> None:
        table = {key: figure.value for key, figure in published("dkg-table-3").items()}
        for label in ("KG", "PKG", "DKG"):
            for derived, printed in (("throughput", "throughput (events/s)"), ("time", "time of the run (s)")):
                ratio = table[label, printed] / table["SG", printed]
                assert table[label, f"{derived} relative to SG"] == pytest.approx(ratio, rel=1e-4)

    def test_no_published_figure_is_left_out(self) -> None:
        ours = dict.fromkeys(published("dkg-table-3"), 1.0)
        assert [each.published for each in compare("dkg-table-3", ours)] == [
            figure.value for figure in published("dkg-table-3").values()
        ]
        ours.pop(("KG", "STD_DEV"))
        with pytest.raises(KeyError):
            compare("dkg-table-3", ours)

    def test_ratio_is_ours_over_the_published_one(self) -> None:
        assert Comparison("a", "λ", 2.0, 1.5, "").ratio == 0.75
        assert math.isnan(Comparison("a", "λ", 0.0, 1.5, "").ratio)


class TestRows:
    def test_selects_by_cells_in_order(self) -> None:
        assert values(ROWS, "λ", case="a") == (1.5, 2.5)
        assert line(ROWS, "A", "W", "λ", case="a") == Line("A", (5.0, 10.0), (1.5, 2.5))
        assert value(ROWS, "λ", case="b", W=5) == 1.0

    @pytest.mark.parametrize("case", ["a", "c"])
    def test_one_value_is_just_one(self, case: str) -> None:
        with pytest.raises(ValueError):
            value(ROWS, "λ", case=case)


class TestLab:
    def test_progress_rises_to_the_end(self) -> None:
        told: list[float] = []
        lab = Lab(1000, progress=told.append)
        for workers in lab.each((2, 3)):
            lab.run(lab.workload("country-skew-50"), create_sources("key", workers, 1))
        assert told == sorted(told)
        assert told[0] == 0 and told[-1] == 1 and 0.5 in told

    def test_a_workload_is_made_once_for_the_same_settings(self) -> None:
        lab = Lab(1000)
        stream = lab.workload("zipf", settings={"z": 1.0, "keys": 50})
        assert lab.workload("zipf", settings={"keys": 50, "z": 1.0}) is stream
        assert lab.workload("zipf", 500, {"z": 1.0, "keys": 50}).events == 500

    def test_scale_and_seed_decide(self) -> None:
        def loads(events: int, seed: int) -> tuple[float, ...]:
            lab = Lab(events, seed)
            return lab.run(lab.workload("ln1"), create_sources("key", 3, 1)).measures.loads

        assert sum(loads(700, 1)) == 700
        assert loads(700, 1) == loads(700, 1) != loads(700, 2)

    def test_looks_a_hundred_times_unless_told_otherwise(self) -> None:
        lab = Lab(2000)
        stream = lab.workload("ln1")
        assert len(lab.run(stream, create_sources("key", 3, 1)).intervals) == 100
        assert len(lab.run(stream, create_sources("key", 3, 1), interval=500).intervals) == 4


class TestText:
    @pytest.mark.parametrize(
        ("figure", "text"),
        [
            (0.0, "0"),
            (1941.879, "1,942"),
            (12.35134, "12.35"),
            (0.47619, "0.4762"),
            (3.7e-8, "3.7e-08"),
            (math.nan, "-"),
        ],
    )
    def test_figures_for_people(self, figure: float, text: str) -> None:
        assert number(figure) == text

    @given(st.floats(1e-300, 1e300) | st.floats(-1e300, -1e-300))
    def test_figures_keep_two_digits(self, figure: float) -> None:
        assert float(number(figure).replace(",", "")) == pytest.approx(figure, rel=0.05)

    def test_shows_everything(self) -> None:
        text = page(SAMPLE, OUTCOME, Lab(12_345, 7))
        assert text.startswith("# sample: a sample\n")
        for part in ("A paper, table 1", "What is run.", "12,345 events per stream, seed 7", "Why it differs."):
            assert part in text
        assert "| a | λ | 2 | 1.5 | 0.75 |" in text
        assert "| b is better | section 2 | 1.0 to 1.5 | yes |" in text
        assert "| a is best | section 3 | 1.5 \\| 1.0 | **no** |" in text
        assert "![a sample](sample.png)" in text and "(sample.csv)" in text

    def test_several_sources_have_a_column(self) -> None:
        comparisons = (*OUTCOME.comparisons, Comparison("b", "λ", 1.0, 1.0, "figure 2"))
        text = page(SAMPLE, Outcome(ROWS, PANELS, comparisons), Lab(1000))
        assert "| a | λ | 2 | 1.5 | 0.75 | table 1 |" in text
        assert "| b | λ | 1 | 1 | 1 | figure 2 |" in text
        assert "the paper says" not in text


class TestFiles:
    def test_figures_picture_and_text(self, tmp_path: Path) -> None:
        write(SAMPLE, OUTCOME, tmp_path, Lab(1000))
        assert read(tmp_path / "sample.csv") == [{name: str(cell) for name, cell in row.items()} for row in ROWS]
        assert (tmp_path / "sample.png").read_bytes().startswith(b"\x89PNG\r\n")
        assert (tmp_path / "sample.md").read_text("utf-8") == page(SAMPLE, OUTCOME, Lab(1000))

    def test_the_same_panels_are_the_same_picture(self, tmp_path: Path) -> None:
        for name in ("one.png", "two.png"):
            draw(PANELS, tmp_path / name)
        draw(PANELS[:1], tmp_path / "other.png")
        one, two, other = ((tmp_path / name).read_bytes() for name in ("one.png", "two.png", "other.png"))
        assert one == two != other

    def test_the_index_has_a_row_for_each_page_in_order_with_links_from_beside_the_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registry, "_EXPERIMENTS", {"second": "", "missing": "", "first": ""})
        folder = tmp_path / "docs" / "v1.2"
        prepare(folder)
        for name in ("first", "second"):
            (folder / f"{name}.md").write_text(f"# {name}: the {name} one\n\nSource: a paper, table 1.\n\nAll of it.\n")
        write_index(folder)
        assert index_of(folder) == tmp_path / "docs" / "v1.2.md"
        index = index_of(folder).read_text("utf-8")
        assert index.startswith("# Experiments\n")
        assert index.endswith(
            "| [second](v1.2/second.md) | the second one | a paper, table 1 |\n"
            "| [first](v1.2/first.md) | the first one | a paper, table 1 |\n"
        )

    def test_tells_where_nothing_can_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ExperimentError, match=r"can't write to .*: Not a directory"):
            prepare(tmp_path / "file" / "folder")
        with pytest.raises(ExperimentError, match=r"can't write to .*: No such file"):
            write(SAMPLE, OUTCOME, tmp_path / "missing", Lab(1000))
        with pytest.raises(ExperimentError, match=r"can't write to .*: No such file"):
            write_index(tmp_path / "missing" / "folder")


class TestCommand:
    @pytest.fixture
    def two(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only two experiments, which are quick."""
        monkeypatch.setattr(
            registry, "_EXPERIMENTS", {"pkg-memory": "pkg_choices:MEMORY", "pkg-agreement": "pkg_sources:AGREEMENT"}
        )

    def test_writes_one_and_tells_of_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "new" / "folder"
        main(["pkg-agreement", "--events", "500", "--seed", "3", "--output", str(folder)])
        assert sorted(path.name for path in folder.iterdir()) == [
            f"pkg-agreement.{kind}" for kind in ("csv", "md", "png")
        ]
        assert "500 events per stream, seed 3" in (folder / "pkg-agreement.md").read_text("utf-8")
        assert capsys.readouterr().out.startswith(f"{folder}/pkg-agreement.md: 2 published figures")
        assert not index_of(folder).exists()

    @pytest.mark.usefixtures("two")
    def test_all_has_an_index_and_a_later_run_keeps_it_up(self, tmp_path: Path) -> None:
        folder = tmp_path / "experiments"
        main(["all", "--events", "300", "--output", str(folder)])
        index = index_of(folder).read_text("utf-8")
        assert "(experiments/pkg-memory.md)" in index and "(experiments/pkg-agreement.md)" in index
        assert "300 events per stream" in (folder / "pkg-memory.md").read_text("utf-8")
        (folder / "pkg-agreement.md").unlink()
        main(["pkg-memory", "--events", "400", "--output", str(folder)])
        assert "pkg-agreement" not in index_of(folder).read_text("utf-8")
        assert "400 events per stream" in (folder / "pkg-memory.md").read_text("utf-8")

    def test_progress_is_told_in_a_pipe(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
        main(["pkg-agreement", "--events", "500", "--output", str(tmp_path)])
        assert "pkg-agreement: 100%\n" in capsys.readouterr().err

    def test_tells_its_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["--version"])
        assert (ended.value.code, capsys.readouterr().out) == (0, f"keygrouping {version()}\n")

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["nope"], "unknown experiment 'nope'; choose from dkg-table-3, "),
            ([], "required: NAME"),
            (["pkg-memory", "--events", "0"], "must be an integer, at least 1, not '0'"),
            (["pkg-memory", "--seed", "-1"], "must be an integer, at least 0"),
        ],
    )
    def test_bad_arguments_give_one_line(
        self, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as stopped:
            main([*arguments])
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert told in error and error.count("\n") == 1

    def test_a_bad_folder_is_told_before_anything_runs(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(SystemExit):
            main(["pkg-imbalance", "--output", str(tmp_path / "file" / "x")])
        assert "can't write to" in capsys.readouterr().err


def test_every_name_is_an_experiment_that_tells_of_itself() -> None:
    for name in names():
        found = experiment(name)
        assert found.name == name
        assert found.events > 0
        assert found.title and found.source and found.setup and found.differences
