"""A whole run against a Kafka that speaks TLS only and asks for a SCRAM password: exact, with both runners."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.logins import PASSWORD as INNER
from keygrouping_local.logins import launched, with_passwords
from keygrouping_local.ports import HOST

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing: no certificate can be made"),
]

PASSWORD = 'pass"word\\1'
JOB = '{"window": "10m", "lateness": "0s", "aggregates": [{"name": "n", "op": "count"}]}'


@dataclass(frozen=True)
class Secured:
    """Address of the broker, and the settings of its clients as environment."""

    address: str
    environment: dict[str, str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = make_certificate(folder)
    broker = EmbeddedBroker(folder / "broker", properties=secured_properties(folder, authority))
    client = {
        "KEYGROUPING_SECURITY_PROTOCOL": "SASL_SSL",
        "KEYGROUPING_SASL_MECHANISM": "SCRAM-SHA-512",
        "KEYGROUPING_SASL_USERNAME": "keygrouping",
        "KEYGROUPING_SASL_PASSWORD_FILE": str(folder / "password"),
        "KEYGROUPING_SSL_CAFILE": str(authority),
    }
    (folder / "password").write_text(PASSWORD)
    with launched(broker):
        add_scram_user(broker, folder, authority)
        yield Secured(broker.bootstrap_servers, client)


@pytest.mark.parametrize(
    "runner",
    [pytest.param("native", marks=pytest.mark.long), pytest.param("spark", marks=pytest.mark.matrix)],
)
@pytest.mark.timeout(300)
def test_a_run_is_exact(secured: Secured, tmp_path: Path, runner: str) -> None:
    done = run_once(secured.address, tmp_path, {**os.environ, **secured.environment}, runner)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "every window equals the oracle's" in done.stdout


@pytest.mark.long
def test_a_wrong_password_is_one_line_that_says_so(secured: Secured, tmp_path: Path) -> None:
    wrong = {"KEYGROUPING_SASL_PASSWORD_FILE": str(tmp_path / "password")}
    (tmp_path / "password").write_text("guess")
    done = run_once(secured.address, tmp_path, {**os.environ, **secured.environment, **wrong}, "native")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "KEYGROUPING_SASL_" in line


def run_once(
    address: str, folder: Path, environment: dict[str, str], runner: str
) -> "subprocess.CompletedProcess[str]":
    (folder / "job.json").write_text(JOB)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    lines = [f"h{i % 7},{(start + timedelta(seconds=i)).isoformat()}\n" for i in range(2000)]
    (folder / "readings.csv").write_text("house,at\n" + "".join(lines))
    options = ["--once", f"--runner={runner}", f"--bootstrap-servers={address}", f"--job={folder / 'job.json'}"]
    file = [f"--workload={folder / 'readings.csv'}", "--key=house", "--time-field=at"]
    environment = {**environment, "KEYGROUPING_LOCAL_DATA_DIR": str(folder / "data"), "COLUMNS": "200"}
    command = [sys.executable, "-m", "keygrouping_local", *options, *file]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def make_certificate(folder: Path) -> Path:
    """A self-signed certificate of the broker, and its key: `broker.pem` holds both."""
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=broker", "-addext", f"subjectAltName=IP:{HOST}"]
    key, certificate = folder / "key.pem", folder / "ca.pem"
    command = ["openssl", "req", *kind, *subject, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "broker.pem").write_text(key.read_text() + certificate.read_text())
    return certificate


def secured_properties(folder: Path, authority: Path) -> dict[str, str]:
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        **with_passwords(mechanisms=["SCRAM-SHA-512"], protocol="SASL_SSL"),
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{scram} required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }


def add_scram_user(broker: EmbeddedBroker, folder: Path, authority: Path) -> None:
    """Adds the user by Kafka's own tool, again until the broker serves."""
    properties = folder / "admin.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="broker" password="{INNER}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
    )
    tool = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        os.pathsep.join(map(str, broker.jars)),
        "kafka.admin.ConfigCommand",
    ]
    where = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(properties)]
    what = ["--alter", "--entity-type=users", "--entity-name=keygrouping"]
    command = [*tool, *where, *what, "--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]"]
    deadline = time.monotonic() + 60
    while (answer := subprocess.run(command, capture_output=True, text=True)).returncode != 0:
        assert time.monotonic() < deadline, answer.stdout + answer.stderr + broker.log.read_text()[-2000:]
