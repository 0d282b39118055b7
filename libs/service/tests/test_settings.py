"""Laws of the settings: the environment decides, typos never pass, all faults are told at once."""

import ssl
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_service import check
from keygrouping_service.settings import ServiceSettings, StageSettings, load, unknown_names
from pydantic import Field, ValidationError

JOB = '{"aggregates": [{"name": "events", "op": "count"}]}'


class RouterLike(StageSettings):
    section: ClassVar[str] = "ROUTER"
    workers: int = Field(default=4, ge=1)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "kafka:9092")
    monkeypatch.setenv("KEYGROUPING_JOB", JOB)
    return monkeypatch


def faults(capsys: pytest.CaptureFixture[str]) -> list[str]:
    with pytest.raises(SystemExit) as stopped:
        load(RouterLike)
    assert stopped.value.code == 2
    return capsys.readouterr().err.splitlines()


def test_own_and_shared_settings_come_from_one_environment(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KEYGROUPING_ROUTER_WORKERS", "7")
    environment.setenv("KEYGROUPING_PRODUCER_RATE", "another service's")
    settings = load(RouterLike)
    assert (settings.workers, settings.bootstrap_servers) == (7, "kafka:9092")
    assert settings.job.aggregates[0].name == "events"


def test_a_section_overrides_a_shared_setting(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KEYGROUPING_HTTP_PORT", "1")
    environment.setenv("KEYGROUPING_ROUTER_HTTP_PORT", "2")
    assert load(RouterLike).http_port == 2


def test_an_empty_value_is_no_value(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KEYGROUPING_ROUTER_WORKERS", "")
    assert load(RouterLike).workers == 4


def test_all_faults_are_told_one_a_line(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    environment.setenv("KEYGROUPING_ROUTER_WORKERS", "0")
    environment.setenv("KEYGROUPING_ROUTER_WORKRES", "3")
    environment.setenv("KEYGROUPING_HTPP_PORT", "3")
    environment.setenv("KEYGROUPING_JOB", '{"aggregates": [], "wndow": 1}')
    environment.delenv("KEYGROUPING_BOOTSTRAP_SERVERS")
    lines = faults(capsys)
    assert len(lines) == 5
    text = "\n".join(lines)
    assert "KEYGROUPING_ROUTER_WORKERS: Input should be greater than or equal to 1" in text
    assert "KEYGROUPING_ROUTER_WORKRES: unknown setting; did you mean KEYGROUPING_ROUTER_WORKERS?" in text
    assert "KEYGROUPING_HTPP_PORT: unknown setting; did you mean KEYGROUPING_HTTP_PORT?" in text
    assert "KEYGROUPING_BOOTSTRAP_SERVERS: Field required" in text
    assert "KEYGROUPING_JOB: wndow: unknown" in text


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=12))
def test_no_misspelt_name_of_the_own_section_passes(name: str) -> None:
    known = name.lower() in RouterLike.model_fields
    variable = f"KEYGROUPING_ROUTER_{name}"
    assert unknown_names(RouterLike, {variable: "x"}) == ([] if known else [variable])


def test_the_job_may_stand_in_a_file(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(JOB)
    environment.setenv("KEYGROUPING_JOB", str(file))
    assert load(RouterLike).job.window_ms == 60_000


def test_a_missing_job_file_is_a_fault(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    environment.setenv("KEYGROUPING_JOB", "/nowhere/job.json")
    (line,) = faults(capsys)
    assert line.startswith("KEYGROUPING_JOB: neither JSON nor a readable file: '/nowhere/job.json'")


def test_sasl_wants_user_and_password(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    environment.setenv("KEYGROUPING_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    (line,) = faults(capsys)
    assert "needs KEYGROUPING_SASL_USERNAME" in line


def test_a_password_file_serves_the_clients_and_is_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hush\n")
    settings = ServiceSettings(
        bootstrap_servers="kafka:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="router",
        sasl_password_file=secret,
    )
    options = settings.kafka_options()
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("router", "hush")
    assert isinstance(options["ssl_context"], ssl.SSLContext)
    assert "hush" not in repr(settings)


def test_plaintext_clients_get_no_security_options() -> None:
    options = ServiceSettings(bootstrap_servers="kafka:9092").kafka_options()
    assert {name for name in options if name.startswith(("sasl", "ssl"))} == set()
    assert options["security_protocol"] == "PLAINTEXT"


def test_an_unusable_ca_file_is_a_fault() -> None:
    with pytest.raises(ValidationError, match="SSL_CAFILE"):
        ServiceSettings(bootstrap_servers="k:1", security_protocol="SSL", ssl_cafile=Path("/nowhere"))


@pytest.mark.parametrize("topic", ["", " ", "my topic", ".", "..", "a/b", "ä", "a" * 250])
def test_a_topic_that_kafka_would_refuse_is_a_fault(topic: str) -> None:
    with pytest.raises(ValidationError):
        ServiceSettings(bootstrap_servers="k:9092", events_topic=topic)


@pytest.mark.parametrize("topic", ["a", "...", ".a", "my-topic_1.v2", "a" * 249])
def test_what_kafka_takes_is_a_topic(topic: str) -> None:
    assert ServiceSettings(bootstrap_servers="k:9092", events_topic=topic).events_topic == topic


def test_topics_with_two_meanings_are_named() -> None:
    with pytest.raises(ValidationError, match=r"KEYGROUPING_EVENTS_TOPIC and KEYGROUPING_ROUTED_TOPIC are both 'a'"):
        ServiceSettings(bootstrap_servers="k:9092", events_topic="a", routed_topic="a")


@pytest.mark.parametrize("servers", ["broker", "a:9092,", ":9092,b", "a:9092;b:9092", "a:port"])
def test_brokers_have_a_host_and_a_port(servers: str) -> None:
    with pytest.raises(ValidationError):
        ServiceSettings(bootstrap_servers=servers)


def test_several_brokers_may_be_given_with_spaces() -> None:
    assert ServiceSettings(bootstrap_servers="a:9092, [::1]:9093").bootstrap_servers == "a:9092, [::1]:9093"


# before a deployment


def test_programs_that_share_a_file_end_in_one_message(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["keygrouping_service.settings:ServiceSettings", "--faults", str(tmp_path / "faults")]
    environment.setenv("KEYGROUPING_EVENTS_TOPIC", "my topic")
    assert check.main(["first", *arguments]) == 0, "the next one is to be asked, too"
    assert capsys.readouterr().out == ""
    environment.setenv("KEYGROUPING_EVENTS_TOPIC", "mine")
    environment.setenv("KEYGROUPING_LOG_LEVEL", "LOUD")
    assert check.main(["last", *arguments, "--last"]) == 2
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["first", "KEYGROUPING_EVENTS_TOPIC"],
        ["last", "KEYGROUPING_LOG_LEVEL"],
    ]


def test_right_settings_need_no_words(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    del environment
    arguments = ["router", "keygrouping_service.settings:ServiceSettings", "--faults", str(tmp_path / "faults")]
    assert check.main([*arguments, "--last"]) == 0
    assert capsys.readouterr().out == ""
