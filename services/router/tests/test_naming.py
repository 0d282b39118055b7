"""Laws of how keys are named: any bytes go through JSON and paths and come back the same."""

from __future__ import annotations

from urllib.parse import unquote

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from keygrouping_router.naming import BadKey, id_of, key_of, named

KEYS = st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode(errors="surrogatepass"))


@given(KEYS)
@example(b"")
@example(b".")
@example(b"..")
@example(b"base64url:QQ")
@example(b"hash:1")
@example(b"a/b?c#d%41\x00\n")
@example("\u202e\u2028ü".encode())
@example(b"\xff\xfe")
def test_every_key_comes_back_from_its_id(key: bytes) -> None:
    assert key_of(id_of(key)) == key


@given(KEYS)
@example(b"..")
@example(b"a/../b")
def test_an_id_is_one_segment_of_a_path_that_no_client_changes(key: bytes) -> None:
    path = httpx.URL(f"http://router/keyspace/{id_of(key)}").raw_path
    assert path == f"/keyspace/{id_of(key)}".encode()
    assert "/" not in id_of(key)
    assert id_of(key) not in ("", ".", "..")
    assert id_of(key).isascii()
    assert id_of(key).isprintable()


@given(KEYS, KEYS)
def test_different_keys_have_different_ids(one: bytes, other: bytes) -> None:
    assert (id_of(one) == id_of(other)) == (one == other)


@given(st.binary(max_size=40))
def test_any_bytes_may_be_percent_encoded(key: bytes) -> None:
    everything = "".join(f"%{byte:02X}" for byte in key)
    if not key.startswith((b"base64url:", b"hash:")):
        assert key_of(everything) == key


@given(st.text(max_size=20).filter(lambda text: not text.startswith(("base64url:", "hash:")) and text.strip(".")))
def test_text_stays_readable(text: str) -> None:
    assert named(text.encode())["key"] == text
    assert unquote(id_of(text.encode())) == text


def test_what_is_no_text_is_base64url() -> None:
    assert named(b"\xff\xfe\xfd\xfc") == {
        "key": None,
        "key_base64": "__79_A",
        "hash": None,
        "id": "base64url:__79_A",
    }


def test_a_key_of_which_only_the_hash_is_known_can_not_be_asked_for() -> None:
    entry = named(None, -5)
    assert entry == {"key": None, "key_base64": None, "hash": "-5", "id": "hash:-5"}
    with pytest.raises(BadKey, match="by its name"):
        key_of(entry["id"])


@pytest.mark.parametrize("wrong", ["base64url:a", "base64url:a+/b", "base64url:a b", "base64url:ü", "base64url:%00"])
def test_what_is_no_base64_is_refused(wrong: str) -> None:
    with pytest.raises(BadKey, match="base64"):
        key_of(wrong)


def test_padding_does_no_harm() -> None:
    assert key_of("base64url:QQ==") == key_of("base64url:QQ") == b"A"
