"""Giving unused ids back, without ever granting one twice.

A counter is lowered from ``top`` by one atomic step of the store.  Comparing the counter alone
is not enough: the ids go back, the reply is lost, another process takes the same range, the counter
is at ``top`` again, a resend succeeds, and two processes own the range.  So the store keeps a
*note* about the last grant of a distributor that may give back, written in the same step as the
grant: a nonce, the ``top`` of the grant, and the ``base`` below it.  The step compares all of them
and the counter, and removes the note.

Suppose that a note is there, and the counter is at its ``top``.  Since the note was written

* no noted grant has happened: it would have written its own note;
* nothing was given back, and no floor was set, not even one below ``top``: both remove the note;
* no plain grant has happened, of CosId on Java or of ours: those only add, and nothing has lowered
the counter.  That is why they need no note.

So nothing has happened to the counter, and the ids between ``base`` and ``top`` still belong to
this process alone.  That holds at each delivery of a call, whatever happened between them.  A
give-back that is delivered again finds no note, or another one.  A grant that is delivered again,
perhaps after the give-back, notes its nonce once more, but with a new range that no process has
received, and with its own ``base``: at worst that range goes back.  A grant that timed out and
arrives late finds the lowered counter, and leaves a gap.

A store that is restored from a copy has a note and a counter that match again.  That alone grants
nothing twice that the restored counter would not grant anyway; a resent give-back might.  So Redis
and PostgreSQL keep the server's identity in the note, and a server that was restarted or promoted
takes nothing back.  Calls to SQLite are not resent.

A tiered store's counter is the cursor of its span, and all of this holds for it: a span is valid on
one server between two restarts, which the step compares as well, and opening the next span sets the
cursor to a new position.  The root's counter is not lowered.

``base`` is where an *unbroken run* of this distributor's grants began: each found the note of the
one before, and the counter at its ``top``.  No other distributor was granted anything above it, so
none remembers a counter above the lowered one and takes it for lost writes.  A fork copies that
memory, so ids that were granted before a fork are not given back.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING

from .._life import fork

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ("GrantNote", "GrantRun", "Offer")


@dataclass(frozen=True, slots=True)
class GrantNote:
    """The note of a grant.

    Attributes:
        nonce: the nonce of this grant.
        previous: the nonce of the grant before, whose run this one continues if it is still noted.
    """

    nonce: str
    previous: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A range that the store is asked to take back.

    Attributes:
        lower: the counter's new value.
        nonce: the nonce of the last grant.
    """

    lower: int
    nonce: str


class GrantRun:
    """The consecutive grants of one distributor object, up to the highest one.

    Attributes:
        is_noted: whether grants are noted in the store; off until `allow_give_back` is called.
    """

    __slots__ = ("_base", "_calls", "_forks", "_kept", "_nonce", "_process", "_top", "is_noted")

    def __init__(self) -> None:
        self.is_noted = False
        self._begin()

    def _begin(self) -> None:
        self._process, self._forks = fork.generation, fork.children
        self._calls: int = 0  # under way
        self._base = self._top = 0
        self._kept = 0  # a forked child may have seen the counter up to here
        self._nonce = ""

    def _look_at_forks(self) -> None:
        if self._process != fork.generation:
            self._begin()  # all notes are the parent's
        elif self._forks != fork.children:
            self._forks, self._kept = fork.children, self._top

    def note(self) -> GrantNote:
        """Return what to note with the next grant."""
        self._look_at_forks()
        return GrantNote(token_hex(8), self._nonce)

    @contextmanager
    def call(self) -> Generator[GrantNote]:
        """Run one grant; if it fails, the store may or may not have carried it out."""
        note = self.note()
        process = self._process
        self._calls += 1
        try:
            yield note
        except BaseException:
            self.forget()
            raise
        finally:
            if process == self._process:
                self._calls -= 1

    def granted(self, note: GrantNote, max_id: int, base: int | None) -> None:
        """Record a grant and its note.

        Args:
            note: its note.
            max_id: the counter after the grant.
            base: where the run began; None if the store has no note.
        """
        self._look_at_forks()
        if base is None:
            self.forget()
        elif not self._nonce or max_id > self._top:  # otherwise a late reply
            self._top, self._base, self._nonce = max_id, base, note.nonce

    def forget(self) -> None:
        """Never give back what was granted so far."""
        self._nonce = ""

    def offer(self, max_id: int, unused: int) -> Offer | None:
        """Return the part of ``(max_id - unused, max_id]`` that may go back; only once."""
        self._look_at_forks()
        nonce, self._nonce = self._nonce, ""
        lower = max(max_id - unused, self._base, self._kept)
        if not nonce or self._calls or max_id != self._top or lower >= max_id:
            return None
        return Offer(lower, nonce)
