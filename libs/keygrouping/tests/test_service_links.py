"""Variables that Kubernetes makes of services are told from settings by their forms, and by nothing else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.service_links import collision, service_links

PORTS = st.integers(1, 65_535)
SERVICES = st.from_regex(re.compile(r"[a-z](?:[a-z0-9-]{0,20}[a-z0-9])?", re.ASCII), fullmatch=True)


def made_of(service: str, host: str, ports: dict[str, int]) -> dict[str, str]:
    """What every pod of the namespace is given, by the documentation of Kubernetes; ports by name, "" for none."""
    prefix = service.upper().replace("-", "_")
    first = next(iter(ports.values()))
    variables = {
        f"{prefix}_SERVICE_HOST": host,
        f"{prefix}_SERVICE_PORT": str(first),
        f"{prefix}_PORT": f"tcp://{host}:{first}",
    }
    for name, port in ports.items():
        if name:
            variables[f"{prefix}_SERVICE_PORT_{name.upper().replace('-', '_')}"] = str(port)
        variables |= {
            f"{prefix}_PORT_{port}_TCP": f"tcp://{host}:{port}",
            f"{prefix}_PORT_{port}_TCP_PROTO": "tcp",
            f"{prefix}_PORT_{port}_TCP_PORT": str(port),
            f"{prefix}_PORT_{port}_TCP_ADDR": host,
        }
    return variables


@given(SERVICES, st.ip_addresses(), st.dictionaries(st.sampled_from(["", "http", "https-2"]), PORTS, min_size=1))
def test_all_that_is_made_of_a_service_is_known_by_its_name(service: str, host: object, ports: dict[str, int]) -> None:
    variables = made_of(service, str(host), ports)
    settings = {"KEYGROUPING_ROUTER_WORKERS": "4", "PATH": "/bin"}
    assert service_links({**settings, **variables}) == dict.fromkeys(variables, service)


def test_a_service_whose_name_begins_with_that_of_another_has_its_own() -> None:
    redis, spare = made_of("keygrouping-redis", "10.0.0.1", {"": 6379}), made_of("keygrouping", "10.0.0.2", {"": 80})
    found = service_links({**redis, **spare})
    assert {name for name, service in found.items() if service == "keygrouping"} == set(spare)
    assert found["KEYGROUPING_REDIS_PORT"] == "keygrouping-redis"


@pytest.mark.parametrize(
    "changed",
    [
        {"KEYGROUPING_APP_SERVICE_HOST": "kafka.example.com"},
        {"KEYGROUPING_APP_SERVICE_HOST": ""},
        {"KEYGROUPING_APP_SERVICE_PORT": "http"},
        {"KEYGROUPING_APP_SERVICE_PORT": ""},
        {"KEYGROUPING_APP_SERVICE_PORT": "123456"},
    ],
    ids=str,
)
def test_without_an_address_and_a_port_there_is_no_service(changed: dict[str, str]) -> None:
    variables = {**made_of("keygrouping-app", "10.0.0.7", {"": 8080}), **changed}
    assert service_links(variables) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KEYGROUPING_APP_PORT", "8080"),
        ("KEYGROUPING_APP_PORT_", "tcp://10.0.0.7:8080"),
        ("KEYGROUPING_APP_PORTS", "tcp://10.0.0.7:8080"),
        ("KEYGROUPING_APP_GROUP", "billing"),
        ("KEYGROUPING_APP_PORT_8080_TCP_ADDR", "example.com"),
        ("KEYGROUPING_APP_PORT_8080_ICMP", "icmp://10.0.0.7:8080"),
    ],
)
def test_what_people_set_stays_a_setting_beside_a_service(name: str, value: str) -> None:
    variables = {**made_of("keygrouping-app", "10.0.0.7", {"": 8080}), name: value}
    assert name not in service_links(variables)


def test_a_collision_says_what_to_do() -> None:
    text = collision("KEYGROUPING_APP_PORT", "tcp://10.0.0.7:8080", "keygrouping-app")
    assert text.startswith("KEYGROUPING_APP_PORT: 'tcp://10.0.0.7:8080'")
    assert "keygrouping-app" in text and "enableServiceLinks: false" in text
