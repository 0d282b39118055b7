"""Tokens from functions of all kinds, and what cannot give one."""

import threading

import pytest
from keygrouping_kafka.sasl_tokens import Tokens, load_callback

THREADS: list[threading.Thread] = []


def plain() -> str:
    THREADS.append(threading.current_thread())
    return "plain"


async def asynchronous() -> str:
    return "asynchronous"


async def test_a_plain_function_is_asked_on_a_thread_of_its_own() -> None:
    assert await Tokens(load_callback(f"{__name__}:plain")).token() == "plain"
    assert THREADS.pop() is not threading.main_thread()


async def test_a_coroutine_function_is_awaited() -> None:
    assert await Tokens(asynchronous).token() == "asynchronous"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("", "can't be imported"),
        ("no.such.module:token", "give module:function, installed here"),
        (f"{__name__}:nothing", "can't be imported"),
        (f"{__name__}:THREADS", "is no function"),
    ],
)
def test_what_gives_no_token_is_told(place: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        load_callback(place)
