"""Giving back what was not used, without ever granting it twice.

A counter is lowered from ``top`` by one atomic step of the store.  Comparing the counter alone
would not do: the ids go back, the reply is lost, another process takes the very same range, the
counter is at ``top`` again, a resend succeeds, and two own the range.  So the store keeps a *note*
on the last grant of a distributor that may give back, written in the same step as the grant: a
nonce, the ``top`` that the grant came to, and the ``base`` below it.  The step compares all of it,
the counter too, and takes the note away.

Let a note be there, and the counter at its ``top``.  Since it was written

* no noted grant has happened: it would have written its own note;
* nothing was given back, and no floor was set, not even one below ``top``: both take the note
  away;
* no plain grant has happened, of CosId on Java or of ours: those only add, and nothing that could
  have lowered the counter has happened.  That is why they need no note.

So nothing at all has happened to the counter, and what lies between ``base`` and ``top`` is still
nobody's but ours.  That holds at each delivery of a call, whatever came between them.  A give-back
that is delivered again finds no note, or another one.  A grant that is delivered again, perhaps
after the give-back, notes its nonce once more, but with a range of its own which nobody has read
of, and its own ``base``: at worst that range goes back.  A grant that we gave up and that arrives
late finds the lowered counter, and makes a gap.

A store that is restored from a copy has a note and a counter that fit each other again.  By itself
that grants nothing twice that the restored counter does not; a resent give-back might.  So Redis
and PostgreSQL keep the server's identity in the note, and one that was restarted or promoted takes
nothing back.  Calls to SQLite are not resent.

A tiered store's counter is the cursor of its span, and all of this is true of it: a span is good
on one server in one life, which the step compares as well, and whoever opens the next one sets the
cursor to where it never was.  The root's counter is not lowered.

``base`` is where an *unbroken run* of our grants began: each found the note of the one before, and
the counter at its ``top``.  Nobody else was granted anything above it, so no other distributor, in
whatever process, remembers a counter above the lowered one, which it would take for lost writes.
A fork copies what we remember: what was granted before it stays where it is.
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
    """What is noted with a grant.

    Attributes:
        nonce: of this grant.
        previous: the nonce of our last one, which this one goes on from if it is still noted.
    """

    nonce: str
    previous: str


@dataclass(frozen=True, slots=True)
class Offer:
    """What the store is asked to take back.

    Attributes:
        lower: what the counter is to be.
        nonce: of our last grant.
    """

    lower: int
    nonce: str


class GrantRun:
    """The grants of one distributor object with nothing between them, up to the topmost one.

    Attributes:
        is_noted: whether grants are noted in the store; off until somebody means to give back.
    """

    __slots__ = ("_base", "_calls", "_forks", "_kept", "_nonce", "_process", "_top", "is_noted")

    def __init__(self) -> None:
        self.is_noted = False
        self._begin()

    def _begin(self) -> None:
        self._process, self._forks = fork.generation, fork.children
        self._calls: int = 0  # under way
        self._base = self._top = 0
        self._kept = 0  # up to here a forked child may remember
        self._nonce = ""

    def _look_at_forks(self) -> None:
        if self._process != fork.generation:
            self._begin()  # all that is noted is the parent's
        elif self._forks != fork.children:
            self._forks, self._kept = fork.children, self._top

    def note(self) -> GrantNote:
        """Return what to note with the next grant."""
        self._look_at_forks()
        return GrantNote(token_hex(8), self._nonce)

    @contextmanager
    def call(self) -> Generator[GrantNote]:
        """Make one grant; if it fails, nobody knows what the store has done."""
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
        """Take down a grant, and what the store has noted.

        Args:
            note: what was noted with it.
            max_id: the counter after it.
            base: where the run began; None if the store has noted nothing.
        """
        self._look_at_forks()
        if base is None:
            self.forget()
        elif not self._nonce or max_id > self._top:  # else a late reply
            self._top, self._base, self._nonce = max_id, base, note.nonce

    def forget(self) -> None:
        """Give nothing back of what was granted so far."""
        self._nonce = ""

    def offer(self, max_id: int, unused: int) -> Offer | None:
        """Return what may go back of ``(max_id - unused, max_id]``; asked for once."""
        self._look_at_forks()
        nonce, self._nonce = self._nonce, ""
        lower = max(max_id - unused, self._base, self._kept)
        if not nonce or self._calls or max_id != self._top or lower >= max_id:
            return None
        return Offer(lower, nonce)
