"""Laws of texts on their way to a terminal."""

import json

import orjson
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.printable import printable, printable_json

NASTY = "a\x1b[2J\x00\u202e\x9b31m\r\n\u2028é日😀"


def test_what_commands_a_terminal_is_an_escape_and_all_else_stays() -> None:
    assert printable(NASTY) == r"a\x1b[2J\x00\u202e\x9b31m\r\n\u2028é日😀"
    assert printable("\udcff") == r"\udcff"


@given(st.text(st.characters(codec="utf-8")))
def test_nothing_unprintable_is_left_and_json_stays_the_same_data(text: str) -> None:
    assert printable(text).isprintable()
    shown = printable_json(orjson.dumps({text: [text, NASTY]}).decode())
    assert shown.isprintable()
    assert json.loads(shown) == {text: [text, NASTY]}
