"""Whether a program can read what is kept: one that can't at all, as after a wrong deploy, is not to begin."""

from __future__ import annotations

from collections.abc import Hashable

from keygrouping_app.handlers import AppError
from keygrouping_app.kept import UnreadableStateError
from keygrouping_app.state import Form
from keygrouping_app.states import States

_LEAST_UNREAD, _MOST_TRIED = 10, 100
"""States that can't be read, before any could, by which a program is known not to fit; and those tried of a partition,
of which some may be so for other reasons."""


class Fit:
    """Of one handler in a member, by some of the states of each partition before anything of it is handled."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._reads = False
        self._unread: dict[Hashable, int] = {}
        """By partition."""

    def check(self, states: States, place: str) -> None:
        """AppError if this member has tried ten states or more, those of other partitions among them, and could read
        none.

        `place`: the partition of the changelog that they are from.
        """
        why: tuple[Hashable, Exception] | None = None
        self._unread[place] = 0
        for group, kept in [] if self._reads else states.sample(_MOST_TRIED):
            try:
                self._form.read(kept)
            except UnreadableStateError as error:
                self._unread[place] += 1
                why = group, error
            except OSError:
                return  # it can't be told now
            else:
                self._reads = True
                return
        unread = sum(self._unread.values())
        if why is not None and unread >= _LEAST_UNREAD:
            raise AppError(
                [
                    f"{place}: none of {unread} states that were tried can be read, so this program does not fit what "
                    f"is kept, and nothing is handled by it. Of key {states.key_of(why[0])!r:.200}, {why[1]}; or run "
                    "the program of before"
                ]
            )
