"""Notes of processes that are killed in the midst of one."""

import os
from pathlib import Path

import pytest
from keygrouping_service.testing import note, notes


@pytest.mark.parametrize("cut", range(1, 16))
def test_a_note_that_a_kill_has_cut_is_left_out_and_spoils_no_other(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    note(file, "start", 123, "t/0/7")
    os.write(file, b"\nstart 123 t/0/77 .\n"[:cut])
    note(file, "end", 123, "t/0/7")
    os.write(file, b"\nend 123 t/0/99 .\n"[:cut])
    os.close(file)
    assert notes(path.read_text().splitlines()) == [["start", "123", "t/0/7"], ["end", "123", "t/0/7"]]
