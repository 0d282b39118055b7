"""The command `keygrouping inspect` on files, as from a terminal."""

import base64
import gzip
import itertools
import json
from collections import Counter
from collections.abc import Generator
from html.parser import HTMLParser
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from chart_files import over_defaults
from keygrouping.cli import inspect, main
from keygrouping.inspection import Batch, Sample, Silence

SECRETS = ["alice@example.org", "bob@example.org", "<b>&carol"]
ROOT = Path(__file__).parents[3]
QUICK = ["--workers", "2", "4", "--groupings", "key", "shuffle", "--interval", "100"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """600 rows, half of them of one key."""
    file = tmp_path / "orders.csv"
    rows = [f"{SECRETS[0] if number % 2 else SECRETS[1 + number % 4 // 2]},{number % 3}" for number in range(600)]
    file.write_text("user,price\n" + "\n".join(rows) + "\nbroken\n")
    return file


def inspected(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main(["inspect", *map(str, arguments), *QUICK])
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(inspected(capsys, *arguments, "--json"))
    return data


def fault(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["inspect", *map(str, arguments)])
    printed = capsys.readouterr()
    assert ended.value.code == 2 and printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith("keygrouping inspect: ")
    return printed.err


def test_the_object_has_the_whole_report(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "--file", table, "--key", "field=user")
    assert data["source"]["events"] == 600 and data["source"]["left_out"] == {"bad-line": 1}
    assert data["keys"]["distinct"] == 3
    top = data["keys"]["top"][0]
    assert top["key"] == SECRETS[0] and top["at_least"] == top["at_most"] == 0.5
    assert [(each["grouping"], each["workers"]) for each in data["groupings"]] == [
        ("key", 2),
        ("shuffle", 2),
        ("key", 4),
        ("shuffle", 4),
    ]
    assert all({"lambda", "std_dev", "dist_cost"} <= each.keys() for each in data["groupings"])
    assert [point["until"] for point in data["trend"]] == [100, 200, 300, 400, 500, 600]
    assert [each["workers"] for each in data["advice"]] == [2, 4]
    weighed = answer(capsys, "--file", table, "--key", "field=user", "--weight", "field=price")
    assert weighed["source"]["weight"] == 600 and weighed["source"]["events"] == 600


def test_json_lines_are_read_like_values_of_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.jsonl.gz"
    lines = [b'{"user": {"id": "a/b"}, "n": 3}', b'{"user": {"id": 7}, "n": 1}', b'{"user": {}}', b"[]"]
    file.write_bytes(gzip.compress(b"\n".join(lines * 50)))
    data = answer(capsys, "--file", file, "--key", "field=/user/id", "--weight", "field=n")
    assert data["source"]["left_out"] == {"bad-line": 100} and data["source"]["events"] == 100
    assert {key["key"]: key["share"] for key in data["keys"]["top"]} == {"a/b": 0.75, "7": 0.25}
    sized = answer(capsys, "--file", file, "--key", "field=/user/id", "--weight", "size")
    assert sized["source"]["weight"] == 50 * (len(lines[0]) + len(lines[1]))


def test_keys_that_are_no_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.csv"
    file.write_bytes(b"key\n" + b"\xff\xfe\n" * 50 + b"\x1b[31mred\n" * 20)
    data = answer(capsys, "--file", file, "--key", "field=key")
    assert data["keys"]["top"][0]["key"] == "base64url:" + base64.urlsafe_b64encode(b"\xff\xfe").decode().rstrip("=")
    assert "\x1b" not in inspected(capsys, "--file", file, "--key", "field=key")


def test_keys_and_names_of_files_do_nothing_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nasty = "[red]\x1b[2J\x00\u202e\x9b"
    file = tmp_path / "a\x1b[31m\u202e.jsonl"
    file.write_bytes(b"".join(json.dumps({"k": nasty}).encode() + b"\n" for _ in range(300)))
    plain = inspected(capsys, "--file", file, "--key", "field=k")
    as_json = inspected(capsys, "--file", file, "--key", "field=k", "--json")
    said = fault(capsys, "--file", f"{file}x", "--key", "field=k")
    for text in (plain, as_json, said):
        assert not set("\x1b\x00\u202e\x9b") & set(text)
    assert r"[red]\x1b[2J\x00\u202e\x9b" in plain
    assert json.loads(as_json)["keys"]["top"][0]["key"] == nasty


def test_a_header_with_a_name_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.csv"
    file.write_text("user,price,price\nx,1,2\n")
    assert "the header has 'price' twice: rename one" in fault(capsys, "--file", file, "--key", "field=user")


def test_tables_and_page(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    printed = inspected(capsys, "--file", table, "--key", "field=user", "--html", page)
    for part in ("600 events", SECRETS[0], "50.00%", "workers per key", "recommended", "W = 4", "bad-line: 1", "trend"):
        assert part in printed
    assert max(map(len, printed.splitlines())) <= 110
    written = page.read_text()
    for text in (printed, written):
        assert "KEYGROUPING_ROUTER_WORKERS=4\n" in text and "KEYGROUPING_ROUTER_GROUPING=shuffle\n" in text
        assert "chart: --set worker.replicas=4 --set router.grouping.name=shuffle" in text
    assert written.count("<svg") == 4 and "&lt;b&gt;&amp;carol" in written and "<b>&carol" not in written
    assert not any(outside in written for outside in ("http", "<script", "<link", "url(", "src="))
    HTMLParser().feed(written)


def test_recommended_values_are_those_of_the_chart(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads((ROOT / "helm/keygrouping/values.schema.json").read_text())
    data = answer(capsys, "--file", table, "--key", "field=user")
    assert [each["values"]["worker"]["replicas"] for each in data["advice"]] == [2, 4]
    for each in data["advice"]:
        jsonschema_rs.validate(schema, over_defaults(each["values"]))


def test_hashed_keys_appear_nowhere(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    arguments = ["--file", table, "--key", "field=user", "--hash-keys", "--salt", "s"]
    shown = inspected(capsys, *arguments, "--html", page) + page.read_text()
    data = answer(capsys, *arguments)
    assert not any(secret in text for secret in ("alice", "bob", "carol") for text in (shown, json.dumps(data)))
    assert data["keys"]["top"][0]["key"] in shown and data["keys"]["top"][0]["share"] == 0.5
    other = answer(capsys, *arguments[:-2])
    assert other["keys"]["top"][0]["key"] != data["keys"]["top"][0]["key"]
    headless = tmp_path / "headless.csv"
    headless.write_text("alice,1\nbob,2\n")
    assert "alice" not in fault(capsys, "--file", headless, "--key", "field=user", "--hash-keys")


def test_the_salt_may_be_in_the_environment_or_a_file(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--file", table, "--key", "field=user", "--hash-keys"]
    given = answer(capsys, *arguments, "--salt", "s")["keys"]["top"]
    monkeypatch.setenv("KEYGROUPING_INSPECT_SALT", "s")
    assert answer(capsys, *arguments)["keys"]["top"] == given
    assert answer(capsys, *arguments, "--salt", "t")["keys"]["top"] != given
    monkeypatch.setenv("KEYGROUPING_INSPECT_SALT_FILE", str(tmp_path / "salt"))
    assert str(tmp_path / "salt") in fault(capsys, *arguments)
    (tmp_path / "salt").write_text("s\n")
    monkeypatch.setenv("KEYGROUPING_INSPECT_SALT", "another")
    assert answer(capsys, *arguments)["keys"]["top"] == given
    monkeypatch.delenv("KEYGROUPING_INSPECT_SALT_FILE")
    monkeypatch.setenv("KEYGROUPING_INSPECT_SALT", "")
    random = answer(capsys, *arguments)["keys"]["top"]
    assert random != given != answer(capsys, *arguments)["keys"]["top"] != random


class Silent:
    """A topic that nobody answers for, until an event comes."""

    kind = "topic"
    name = "events"
    partitions = 2
    sample = Sample(0, 10, 0)
    followed = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.silence: Silence | None = Silence(1_700_000_000_000, 2, 2)
        self.left_out: Counter[str] = Counter()

    def batches(self) -> Generator[Batch, None, None]:
        yield Batch([])
        yield Batch([])
        self.silence, self.followed = None, 1
        yield Batch([b"key"])


def test_silence_is_told_before_the_first_event(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "_loaded", lambda *_: Silent)
    monkeypatch.setattr("time.monotonic", itertools.count(0, 10).__next__)
    main(["inspect", "--topic", "events", "--sample", "0", "--follow", *QUICK])
    printed = capsys.readouterr()
    line = "keygrouping inspect: No answer from Kafka for 2 of 2 partitions since 2023-11-14 22:13:20 UTC: "
    assert [each.startswith(line) for each in printed.err.splitlines()] == [True, True]
    assert "1 events (1 that came since)" in printed.out


def test_what_does_not_go_together_is_told(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--topic --file is required" in fault(capsys)
    assert "not allowed with" in fault(capsys, "--file", table, "--topic", "events")
    assert "choose field=NAME" in fault(capsys, "--file", table)
    assert "choose from record, header=NAME" in fault(capsys, "--file", table, "--key", "user")
    assert "choose from 1, size" in fault(capsys, "--file", table, "--key", "field=user", "--weight", "2")
    assert "choose from user, price" in fault(capsys, "--file", table, "--key", "field=id")
    assert "choose from shuffle, key" in fault(capsys, "--file", table, "--key", "field=user", "--groupings", "best")
    assert "add --format with" in fault(capsys, "--file", tmp_path / "events", "--key", "field=user")
    assert "choose from" in fault(capsys, "--file", table, "--key", "field=user", "--format", "xml")
    assert "No such file" in fault(capsys, "--file", tmp_path / "none.csv", "--key", "field=user")
    assert "only with --topic" in fault(capsys, "--file", table, "--follow")
    assert "only with --file" in fault(capsys, "--topic", "events", "--format", "csv")
    assert "--every: only with --follow" in fault(capsys, "--file", table, "--every", "3")
    assert "only with --hash-keys" in fault(capsys, "--file", table, "--salt", "x")
    assert "there is no folder" in fault(capsys, "--file", table, "--html", tmp_path / "no" / "page.html")
    assert "at least 32" in fault(capsys, "--file", table, "--interval", "10")
    empty = tmp_path / "empty.csv"
    empty.write_text("user\n")
    assert "holds no events" in fault(capsys, "--file", empty, "--key", "field=user")
    monkeypatch.setattr(inspect, "entry_points", lambda **_: EntryPoints())
    missing = fault(capsys, "--topic", "events")
    assert "needs the package keygrouping-service: in the repository's folder, pip install" in missing
    assert all((ROOT / folder).is_dir() for folder in ("libs/keygrouping", "libs/kafka", "libs/service"))
    assert "'./libs/keygrouping[cli]' ./libs/kafka ./libs/service" in missing
