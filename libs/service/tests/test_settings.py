"""Laws of the settings: the environment decides, typos never pass, all faults are told at once."""

import ssl
import sys
from pathlib import Path
from typing import ClassVar, Literal

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


def test_what_settings_are_refused_for_together_is_told_beside_what_is_wrong_by_itself(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("KEYGROUPING_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    (together,) = faults(capsys)
    environment.setenv("KEYGROUPING_ROUTER_WORKERS", "0")
    environment.setenv("KEYGROUPING_ROUTER_LINGRE", "3")
    lines = faults(capsys)
    assert {line.partition(":")[0] for line in lines[:2]} == {"KEYGROUPING_ROUTER_WORKERS", "KEYGROUPING_ROUTER_LINGRE"}
    assert lines[2:] == [together]


def test_what_follows_from_a_wrong_setting_is_not_told(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("KEYGROUPING_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    environment.setenv("KEYGROUPING_SASL_MECHANISM", "OAUTHBEARER")
    environment.setenv("KEYGROUPING_SASL_TOKEN_PROVIDER", "no place of a function")
    (fault,) = faults(capsys)
    assert fault.startswith("KEYGROUPING_SASL_TOKEN_PROVIDER: String should match")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_told_as_that(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    environment.setenv("KEYGROUPING_HTTP_BODY_TIMEOUT", value)
    assert faults(capsys) == ["KEYGROUPING_HTTP_BODY_TIMEOUT: Input should be a finite number"]


def test_a_name_of_another_service_is_not_taken_for_one_that_begins_alike(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("KEYGROUPING_ROUTER_MAX_LATENESS", "1")
    (fault,) = faults(capsys)
    assert "did you mean" not in fault
    assert "; known are KEYGROUPING_APPLICATION, " in fault


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=12))
def test_no_misspelt_name_of_the_own_section_passes(name: str) -> None:
    known = name.lower() in RouterLike.model_fields
    variable = f"KEYGROUPING_ROUTER_{name}"
    assert unknown_names(RouterLike, {variable: "x"}) == ([] if known else [variable])


def service(name: str, port: int) -> dict[str, str]:
    """What Kubernetes gives every pod of a service's namespace."""
    prefix, host = name.upper().replace("-", "_"), "10.96.0.11"
    url = f"tcp://{host}:{port}"
    return {
        f"{prefix}_SERVICE_HOST": host,
        f"{prefix}_SERVICE_PORT": str(port),
        f"{prefix}_SERVICE_PORT_HTTP": str(port),
        f"{prefix}_PORT": url,
        f"{prefix}_PORT_{port}_TCP": url,
        f"{prefix}_PORT_{port}_TCP_PROTO": "tcp",
        f"{prefix}_PORT_{port}_TCP_PORT": str(port),
        f"{prefix}_PORT_{port}_TCP_ADDR": host,
    }


def test_what_kubernetes_makes_of_services_is_no_setting(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    links = service("keygrouping-redis", 6379) | service("keygrouping-router", 8080) | service("keygrouping", 80)
    for name, value in links.items():
        environment.setenv(name, value)
    assert load(RouterLike).workers == 4
    environment.setenv("KEYGROUPING_REDIS_PROT", "6379")
    environment.setenv("KEYGROUPING_REDIS_PORT_80", "tcp://10.96.0.11:80")
    environment.setenv("KEYGROUPING_ROUTER_PORT", "8080")
    assert [line.partition(":")[0] for line in faults(capsys)] == [
        "KEYGROUPING_REDIS_PORT_80",
        "KEYGROUPING_REDIS_PROT",
        "KEYGROUPING_ROUTER_PORT",
    ]


@pytest.mark.parametrize("missing", ["SERVICE_HOST", "SERVICE_PORT"])
def test_without_its_service_a_variable_is_a_misspelt_setting(missing: str) -> None:
    links = service("keygrouping-redis", 6379)
    del links[f"KEYGROUPING_REDIS_{missing}"]
    assert unknown_names(RouterLike, links) == sorted(links)


def test_a_service_that_is_called_like_a_setting_is_told_with_what_to_do(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in service("keygrouping-http", 80).items():
        environment.setenv(name, value)
    assert faults(capsys) == [
        "KEYGROUPING_HTTP_PORT: 'tcp://10.96.0.11:80' is what Kubernetes has made of the service keygrouping-http: "
        "set enableServiceLinks: false in the pod's spec, or give the service another name"
    ]
    environment.setenv("KEYGROUPING_HTTP_PORT", "8080")
    assert load(RouterLike).http_port == 8080


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


@pytest.mark.parametrize(
    ("token", "fault"),
    [
        (
            "",
            "needs KEYGROUPING_SASL_TOKEN_PROVIDER with KEYGROUPING_SASL_MECHANISM=OAUTHBEARER",
        ),
        ("signer", "KEYGROUPING_SASL_TOKEN_PROVIDER: String should match pattern"),
        (
            "no_such.module:token",
            "KEYGROUPING_SASL_TOKEN_PROVIDER: 'no_such.module:token' can't be imported (No module named",
        ),
        ("keygrouping_service.settings:PREFIX", "is no function: give module:function"),
    ],
)
def test_oauthbearer_wants_a_function_that_gives_tokens(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], token: str, fault: str
) -> None:
    environment.setenv("KEYGROUPING_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    environment.setenv("KEYGROUPING_SASL_MECHANISM", "OAUTHBEARER")
    environment.setenv("KEYGROUPING_SASL_TOKEN_PROVIDER", token)
    (line,) = faults(capsys)
    assert fault in line


def test_tokens_of_msk_iam_say_what_installs_them(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setitem(sys.modules, "keygrouping_msk_iam", None)
    environment.setenv("KEYGROUPING_SECURITY_PROTOCOL", "SASL_SSL")
    environment.setenv("KEYGROUPING_SASL_MECHANISM", "OAUTHBEARER")
    environment.setenv("KEYGROUPING_SASL_TOKEN_PROVIDER", "keygrouping_msk_iam:token")
    (line,) = faults(capsys)
    assert "KEYGROUPING_SASL_TOKEN_PROVIDER: 'keygrouping_msk_iam:token' can't be imported" in line
    assert "pip install ./libs/msk-iam" in line


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


def test_programs_of_other_users_may_add_their_faults(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    del environment
    faults = tmp_path / "faults"
    assert check.main(["producer", "keygrouping_service.settings:ServiceSettings", "--faults", str(faults)]) == 0
    assert faults.stat().st_mode & 0o666 == 0o666, "each image has a user of its own: Spark's is not the services'"


class OwnStages(ServiceSettings):
    """A service whose `stages` are something else than those that others share, as the Spark job's."""

    section: ClassVar[str] = "SPARK"

    stages: Literal["worker", "aggregator"] = "worker"


def test_a_shared_setting_is_not_taken_for_a_field_that_only_has_its_name(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("KEYGROUPING_STAGES", "route")
    environment.delenv("KEYGROUPING_JOB")
    assert load(OwnStages).stages == "worker"
    environment.setenv("KEYGROUPING_SPARK_STAGES", "aggregator")
    assert load(OwnStages).stages == "aggregator"
