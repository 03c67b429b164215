"""The span of one counter: a range of ids, reserved in a durable store, that a server grants from.

A span is valid only on the server that opened it, while that server keeps its run_id and its
master_replid.  Neither is enough alone: run_id stays the same if a master is demoted and promoted
again, and master_replid stays the same after a restart.

The span is one hash, ``aiocosid:{<namespace>.<name>}:span``, with the following fields.  Each
field's name is followed by ``@`` and the root's name: spans of two roots must not be mixed, while
two names for one root do no harm.

* ``server``: the server that opened it; ``cursor``: the last id granted; ``last``: the span's
last id.
* ``claim``: the caller that is reserving the next span, as nonce, server, time, and a count of
claims, which is kept in ``claims``; ``by``: the server that wrote the claim; ``until``: when the
claim ends, in ms of the server's TIME.

Numbers are text, up to 2^63-1: Lua numbers are not exact above 2^53.  The first argument of each
script is the root's name.  If the server hides its identity, each script returns ``{'hidden',
why}`` and writes nothing.  The other arguments and results are:

* take: step, the highest max id that the caller has seen, nonce, and the length of a claim in ms.
It returns ``taken`` and the max id; or ``claimed``, the reason, and the claim, where the reason
says that the span is ``missing``, of another ``server``, ``damaged``, ``behind`` the caller, or has
too few ids ``left``; or ``opening``, and the ms for which another caller's claim is valid.
* open: claim, cursor (behind the caller's own segment), and last.  It returns ``opened``, with
cursor and last of the previous span, or ``late``.
* release: the nonce of the claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import StoreIdentityHiddenError
from ._demands import STORE
from ._link import UNDECODED, Script, script_of, text_of

if TYPE_CHECKING:
    from ._link import RedisLink

__all__ = ("CLAIM_MS", "Claimed", "Opening", "Span", "SpanTaken")

# How long a claim is valid; a slower caller loses the claim and the rest of its span.  The slowest
# usable root takes less time, since a generator's call times out after 2 s.  Other callers wait as
# long as they wait for Redis, and then reserve segments from the root.
CLAIM_MS: Final = 2500

LOOK: Final = script_of("server", "span_common", "span_look")
TAKE: Final = script_of("server", "span_common", "span_take")
OPEN: Final = script_of("server", "span_common", "span_open")
RELEASE: Final = script_of("server", "span_common", "span_release")


@dataclass(frozen=True, slots=True)
class SpanTaken:
    """The segment that ends at ``max_id`` is the caller's.

    Attributes:
        max_id: its last id.
    """

    max_id: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """The caller must now open a span.

    Attributes:
        why: ``missing``, ``server``, ``damaged``, ``behind`` or ``left``.
        claim: the unique right to open a span once.
    """

    why: str
    claim: bytes


@dataclass(frozen=True, slots=True)
class Opening:
    """Another caller is opening a span.

    Attributes:
        left: seconds until that caller's claim ends.
    """

    left: float


class Span:
    """The span of a counter, on a store's connections.

    Each call raises `StoreIdentityHiddenError` if the server hides its identity, and otherwise the
    same errors as the store's other calls.  A cancelled call may have taken effect.
    """

    __slots__ = ("_key", "_link", "_name", "_root")

    def __init__(self, link: RedisLink, name: str, root: str) -> None:
        """Describe the span; nothing is sent yet.

        Args:
            link: the connections.
            name: the counter's ``{namespace}.{name}``.
            root: the name of the store in which it is reserved.
        """
        self._link = link
        self._name = name
        self._root = root.encode(errors="backslashreplace")
        self._key = f"aiocosid:{{{name}}}:span".encode()

    async def refresh(self) -> None:
        """Check that the server shows its identity and allows a span; leave no data behind."""
        await self._ask(LOOK)

    async def take(self, step: int, floor: int, nonce: bytes) -> SpanTaken | Claimed | Opening:
        """Reserve a segment, or claim the right to open a span, in the caller's name ``nonce``."""
        found, *facts = await self._ask(TAKE, step, floor, nonce, CLAIM_MS)
        if found == "taken":
            return SpanTaken(int(facts[0]))
        if found == "claimed":
            return Claimed(facts[0], facts[1].encode())
        return Opening(int(facts[0]) / 1000)

    async def open(self, claim: bytes, cursor: int, last: int) -> tuple[bool, int]:
        """Open a span whose ids up to ``cursor`` are taken, if the claim is still valid.

        Args:
            claim: the claim as `take` returned it.
            cursor: the last id of the caller's own segment.
            last: the last id of the span.

        Returns:
            Whether the span was opened, and how many ids of the previous span were abandoned.
        """
        found, *facts = await self._ask(OPEN, claim, cursor, last)
        before = [int(each) for each in facts if each]
        return found == "opened", max(0, before[1] - before[0]) if len(before) > 1 else 0

    async def release(self, nonce: bytes) -> bool:
        """Release a claim, if it has the caller's nonce."""
        return await self._ask(RELEASE, nonce) == ["released"]

    async def void(self) -> None:
        """Remove the spans of all roots, and all claims."""
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
