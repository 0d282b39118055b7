"""What is logged is one line per event, whatever a key holds; as JSON it can be read by machines."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_service.errors import Fatal
from keygrouping_service.observability.logs import TextFormatter, json_formatter, set_up_logging
from keygrouping_service.run import run
from keygrouping_service.settings import ServiceSettings

JSON = ServiceSettings(bootstrap_servers="unused:9092", log_format="json")

any_text = st.text(st.characters(codec=None, categories=None, exclude_categories=()), max_size=20)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def written(formatter: logging.Formatter, message: str, *arguments: object, level: int = logging.INFO) -> str:
    """What one event becomes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.handle(logging.LogRecord("keygrouping_router.data.extract", level, "x.py", 1, message, arguments, None))
    return stream.getvalue()


@given(any_text)
def test_an_event_is_one_json_object_on_one_line_of_ascii(key: str) -> None:
    line = written(json_formatter(), "key %s is hot", key)
    assert line.isascii() and line.count("\n") == 1 and line.endswith("\n")
    assert not re.search(r"[\x00-\x1f\x7f]", line[:-1].replace("\x7f", ""))
    event = json.loads(line)
    assert list(event) == ["timestamp", "level", "logger", "event"]
    assert event["event"] == f"key {key} is hot"
    assert (event["level"], event["logger"]) == ("info", "keygrouping_router.data.extract")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", event["timestamp"])


@given(any_text)
def test_a_line_of_text_holds_no_control_characters(key: str) -> None:
    line = written(TextFormatter(), "key %s is hot", key.encode(errors="replace").decode(), level=logging.WARNING)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", line.removesuffix("\n"))
    assert re.match(r"[-\d]+ [:,\d]+ WARNING keygrouping_router\.data\.extract: key ", line)


def test_control_characters_are_shown_as_escapes() -> None:
    assert written(TextFormatter(), "key %s", "a\x1b[2J\r\nb\x85c").endswith("key a\\x1b[2J\\r\\nb\\x85c\n")


def test_an_exception_stays_with_its_event(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("INFO", "json")
    try:
        raise RuntimeError("broken\nin two")
    except RuntimeError:
        logging.getLogger("x").exception("stopped by %s", "a defect")
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["level"], event["event"]) == ("error", "stopped by a defect")
    assert event["exception"].startswith("Traceback") and event["exception"].endswith("broken\nin two")


def test_a_fault_that_ends_a_service_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_: asyncio.Event) -> None:
        raise Fatal("topic 'x' is missing")

    assert run(main, JSON) == 1
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["level"], event["event"]) == ("critical", "topic 'x' is missing")


@pytest.mark.parametrize("name", ["aiokafka.producer.sender", "uvicorn.error", "opentelemetry.exporter"])
def test_libraries_are_kept_short(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("INFO", "text")
    log = logging.getLogger(name)
    for _ in range(3):
        log.error("away %s", "x")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (3 if name.startswith("uvicorn") else 1)


def test_each_request_of_a_client_is_not_worth_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("INFO", "text")
    logging.getLogger("httpx").info("HTTP Request: GET http://router/workers")
    assert capsys.readouterr().err == ""
