"""Tokens of the real signer, with credentials that are given: it signs without AWS."""

from __future__ import annotations

import base64
import subprocess
import sys
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import keygrouping_msk_iam as module
import pytest
from keygrouping_msk_iam import MskIam, token

REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Static ones, of nobody."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", *REGIONS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_provider", None)


def said(given: str) -> tuple[str, dict[str, list[str]]]:
    """Host and query of the address that the token is."""
    parts = urlsplit(base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode())
    return parts.netloc, parse_qs(parts.query)


async def test_a_token_is_a_signed_request_to_connect() -> None:
    host, query = said(await MskIam("eu-central-1").token())
    assert host == "kafka.eu-central-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert len(query["X-Amz-Signature"][0]) == 64
    signed = datetime.strptime(query["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - signed).total_seconds()) < 300


@pytest.mark.parametrize("name", REGIONS)
def test_the_region_is_that_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "eu-west-1")
    assert said(token())[0] == "kafka.eu-west-1.amazonaws.com"


def test_without_a_region_it_says_what_to_set() -> None:
    with pytest.raises(ValueError, match="set AWS_REGION to the cluster's"):
        token()


def test_a_token_is_kept_until_it_is_nearly_over(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def generate(region: str) -> tuple[str, int]:
        made.append(region)
        return f"token {len(made)}", 1_900_000

    clock = [1000.0]
    monkeypatch.setattr("keygrouping_msk_iam.MSKAuthTokenProvider.generate_auth_token", generate)
    monkeypatch.setattr("keygrouping_msk_iam.time.time", lambda: clock[0])
    provider = MskIam("eu-west-1")
    assert [provider.token_now() for _ in range(3)] == ["token 1"] * 3
    clock[0] = 1779.0
    assert provider.token_now() == "token 1"
    clock[0] = 1781.0
    assert provider.token_now() == "token 2"
    assert made == ["eu-west-1"] * 2


def test_a_missing_library_is_named_with_what_installs_it() -> None:
    code = "import sys; sys.modules['aws_msk_iam_sasl_signer'] = None; import keygrouping_msk_iam"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 1
    assert "keygrouping_msk_iam needs a package: pip install aws-msk-iam-sasl-signer-python" in found.stderr
