"""The span of one counter: a range of ids, leased from a durable store, that a server hands out.

A span is good only on the server that opened it, and while that server is the same life of the same
history: run_id alone comes back with a demoted and promoted master, master_replid alone with a
restart.

It lies in one hash of ours, ``aiocosid:{<namespace>.<name>}:span``, with these fields, each with an
``@`` and the root's name behind it: spans of two roots must not be mixed, and those of one root
under two names do no harm.

* ``server``: who opened it; ``cursor`` and ``last``: the last id handed out, and the last one.
* ``claim``: who leases the next span just now, as nonce, server, when, and a count of claims, which
  stays in ``claims``; ``by``: who took it down; ``until``: when it ends, in ms by TIME.
* ``note``: nonce of the last grant, of one who may give it back; ``top``: the cursor after it;
  ``base``: where that one's grants began.

Numbers are text, up to 2^63-1: as a Lua number they would lose what is above 2^53.  The first
argument of each script is the root's name, and each answers ``{'hidden', why}`` where the server
does not tell who it is; nothing was written then.  Behind it

* take has: step, the highest max id that the caller has seen, nonce, how long a claim lasts in ms,
  the nonce to note the grant with and that of the grant before, or ''.  It answers ``taken``, the
  max id, and where a run of the caller's noted grants began; ``claimed``, why, and the claim: the
  span is ``missing``, of another ``server``, ``damaged``, ``behind`` the caller, or has too little
  ``left``; or ``opening``, and the ms for which somebody else is about to, at most.
* open has: claim, cursor (the caller's own segment is taken already), last, nonce to note that
  segment with, where the span begins.  It answers ``opened``, cursor and last of the span before
  it, or ``late``.
* give_back has: where the cursor has to be, where it is to be, nonce of the grant, how many ids
  that is.  It answers ``returned`` or ``kept``.
* release has the nonce of the claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import StoreIdentityHiddenError
from .._give_back import GrantNote
from ._errors import STORE
from ._link import UNDECODED, Script, script_of, text_of

if TYPE_CHECKING:
    from ._link import RedisLink

__all__ = ("CLAIM_MS", "UNNOTED", "Claimed", "Opening", "Span", "SpanTaken")

# How long nobody else leases a span; who is slower loses the claim, and the rest of their span.
# More than a root takes that is just fast enough: a generator gives a call up after 2 s.  Others
# wait for as long as they wait for Redis, and then take segments from the root.
CLAIM_MS: Final = 2500

UNNOTED: Final = GrantNote("", "")

LOOK: Final = script_of("server", "span_common", "span_look")
TAKE: Final = script_of("server", "span_common", "span_take")
OPEN: Final = script_of("server", "span_common", "span_open")
RELEASE: Final = script_of("server", "span_common", "span_release")
GIVE_BACK: Final = script_of("server", "span_common", "span_give_back")


@dataclass(frozen=True, slots=True)
class SpanTaken:
    """The segment that ends at ``max_id`` is the caller's.

    Attributes:
        max_id: its last id.
        base: where a run of the caller's noted grants began, or None if it is not noted.
    """

    max_id: int
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The caller has to open a span.

    Attributes:
        why: ``missing``, ``server``, ``damaged``, ``behind`` or ``left``.
        claim: the right to do so, once; no other is the same.
    """

    why: str
    claim: bytes


@dataclass(frozen=True, slots=True)
class Opening:
    """Somebody else is opening a span.

    Attributes:
        left: seconds for which the others leave it to them.
    """

    left: float


class Span:
    """The span of a counter, on a store's connections.

    Each call raises `StoreIdentityHiddenError` where the server does not tell who it is, and else
    what the store's own raise.  Cancelled, it may have taken effect.
    """

    __slots__ = ("_key", "_link", "_name", "_root")

    def __init__(self, link: RedisLink, name: str, root: str) -> None:
        """Describe it; nothing is sent yet.

        Args:
            link: the connections.
            name: the counter's ``{namespace}.{name}``.
            root: the name of the store that leases it.
        """
        self._link = link
        self._name = name
        self._root = root.encode(errors="backslashreplace")
        self._key = f"aiocosid:{{{name}}}:span".encode()

    async def refresh(self) -> None:
        """Make sure that the server tells who it is, and allows a span; nothing stays."""
        await self._ask(LOOK)

    async def take(
        self, step: int, floor: int, nonce: bytes, note: GrantNote = UNNOTED
    ) -> SpanTaken | Claimed | Opening:
        """Take a segment, or claim the right to open a span, in the caller's name ``nonce``."""
        nonces = note.nonce.encode(), note.previous.encode()
        found, *facts = await self._ask(TAKE, step, floor, nonce, CLAIM_MS, *nonces)
        if found == "taken":
            return SpanTaken(int(facts[0]), int(facts[1]) if facts[1] else None)
        if found == "claimed":
            return Claimed(facts[0], facts[1].encode())
        return Opening(int(facts[0]) / 1000)

    async def open(
        self, claim: bytes, cursor: int, last: int, *, note: GrantNote = UNNOTED, base: int = 0
    ) -> tuple[bool, int]:
        """Open a span whose ids up to ``cursor`` are taken, if the claim is still there.

        Args:
            claim: as it was answered.
            cursor: the last id of the caller's own segment.
            last: the last id of the span.
            note: what is noted with that segment.
            base: the id before the span's first one.

        Returns:
            Whether it was opened, and how many ids of the span before it are given up.
        """
        found, *facts = await self._ask(OPEN, claim, cursor, last, note.nonce.encode(), base)
        before = [int(each) for each in facts if each]
        return found == "opened", max(0, before[1] - before[0]) if len(before) > 1 else 0

    async def release(self, nonce: bytes) -> bool:
        """Give a claim back, if it is of the caller's name."""
        return await self._ask(RELEASE, nonce) == ["released"]

    async def give_back(self, top: int, lower: int, nonce: bytes) -> bool:
        """Put the cursor back from ``top`` to ``lower``, if nothing happened since the grant."""
        return await self._ask(GIVE_BACK, top, lower, nonce, top - lower) == ["returned"]

    async def void(self) -> None:
        """Forget the spans, of whatever root, and whoever is about to open one."""
        await self._link.call(
            lambda client: client.execute_command("DEL", self._key, **UNDECODED),
            counter=self._name,
            key=self._key,
        )

    async def _ask(self, script: Script, *arguments: bytes | int) -> list[str]:
        given = self._root, *arguments
        answer = await self._link.run(script, (self._key,), *given, counter=self._name)
        reply = [text_of(each) for each in answer]
        if reply[0] == "hidden":
            raise StoreIdentityHiddenError(STORE, reply[1])
        return reply
