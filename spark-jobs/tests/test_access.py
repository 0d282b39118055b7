"""What reaches the tasks of the driver's settings: whole, without its files, and without showing a secret."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from keygrouping_kafka.errors import can_be_retried
from keygrouping_spark.access import Access, Certificates, TokenServer
from keygrouping_spark.settings import SparkSettings

SECRET = "a secret that nobody may read"

with_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


def settings(**given: Any) -> SparkSettings:
    return SparkSettings(bootstrap_servers="none:9", checkpoint="none", job='{"aggregates": []}', **given)


def sent(access: Access) -> Access:
    """As a task has it."""
    found: Access = pickle.loads(pickle.dumps(access))
    assert found == access
    return found


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that is its own authority, and its key."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command = ["openssl", "req", *kind, "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(chain)], check=True, capture_output=True)
    return chain, key


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> Any:
    """The client's certificate as the server sees it, once both have taken the other's; SSLError otherwise."""
    ways = [ssl.MemoryBIO() for _ in range(4)]
    ours = client.wrap_bio(ways[0], ways[1], server_hostname="localhost")
    theirs = server.wrap_bio(ways[2], ways[3], server_side=True)
    for _ in range(10):
        for side in (ours, theirs):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            ways[2].write(ways[1].read())
            ways[0].write(ways[3].read())
    return theirs.getpeercert()


@with_openssl
@pytest.mark.parametrize("apart", [True, False], ids=["key apart", "key with its certificate"])
def test_a_task_speaks_tls_though_it_has_none_of_the_files(tmp_path: Path, apart: bool) -> None:
    chain, key = certificate(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(chain))
    server.load_cert_chain(chain, key)
    server.verify_mode = ssl.CERT_REQUIRED
    authority = tmp_path / "authority.pem"
    authority.write_text(chain.read_text())
    if not apart:
        chain.write_text(chain.read_text() + key.read_text())
    files = {"ssl_cafile": authority, "ssl_certfile": chain} | ({"ssl_keyfile": key} if apart else {})
    access = sent(settings(security_protocol="SSL", **files).access())
    for file in (authority, chain, key):
        file.unlink()
    assert "PRIVATE KEY" not in repr(access)
    options = access.kafka_options()
    assert options["security_protocol"] == "SSL"
    assert ("subject", ((("commonName", "localhost"),),)) in shake_hands(options["ssl_context"], server).items()


@with_openssl
def test_without_a_certificate_of_its_own_a_task_trusts_the_authority_alone(tmp_path: Path) -> None:
    chain, _ = certificate(tmp_path)
    chain.write_text(f"# Főtanúsítvány\n{chain.read_text()}")
    access = sent(settings(security_protocol="SSL", ssl_cafile=chain).access())
    assert access.certificates == Certificates(chain.read_text(), None, None)
    context = access.kafka_options()["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1


def test_a_password_goes_along_from_its_file_and_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(SECRET)
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "me"}
    access = sent(settings(**login, sasl_password_file=tmp_path / "password").access())
    assert access.certificates is None
    assert access.kafka_options()["sasl_plain_password"] == SECRET
    assert SECRET not in repr(access)


async def test_a_driver_that_gives_no_token_may_give_one_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no proxy is asked instead, which would have the secret then."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:2")
    server = TokenServer("http://127.0.0.1:1/kafka-token", SECRET)
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    job = settings(**login, sasl_token_provider="time:ctime").with_token_server(server)
    access = sent(job.access())
    assert access.options["sasl_oauth_token_provider"] == server
    assert isinstance(server, AbstractTokenProvider)
    assert SECRET not in repr((access, server))
    with pytest.raises(KafkaConnectionError, match="the driver gives no token") as caught:
        await server.token()
    assert can_be_retried(caught.value)
