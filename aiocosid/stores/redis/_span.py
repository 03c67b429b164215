"""The span of one counter: a range of ids, leased from a durable store, that a server hands out.

It lies in one hash of ours, ``aiocosid:{<namespace>.<name>}:span``; the scripts are the ``.lua``
files of this package, and what all have in common is in ``span_common.lua``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from ...errors import StoreIdentityHiddenError
from .._give_back import Note
from ._errors import STORE, translated
from ._machine_scripts import text_of
from ._scripts import UNDECODED, Script

if TYPE_CHECKING:
    from ._segment import RedisIdSegmentDistributor

__all__ = ("CLAIM_MS", "UNNOTED", "Claimed", "Opening", "Span", "Taken")

CLAIM_MS: Final = 2500
"""How long nobody else leases a span; who is slower loses the claim, and the rest of their span.

More than a root takes that is just fast enough: a generator gives a call up after 2 s.  Others wait
for as long as they wait for Redis, and then take segments from the root.
"""


UNNOTED: Final = Note("", "")


def _script(name: str) -> Script:
    folder = files(__package__ or "")
    texts = [folder.joinpath(f"span_{each}.lua").read_bytes() for each in ("common", name)]
    return Script(b"".join(texts))


LOOK: Final = _script("look")
TAKE: Final = _script("take")
OPEN: Final = _script("open")
RELEASE: Final = _script("release")
GIVE_BACK: Final = _script("give_back")


@dataclass(frozen=True, slots=True)
class Taken:
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
    """The span of a counter, on a distributor's connections.

    Each call raises `StoreIdentityHiddenError` where the server does not tell who it is, and else
    what the distributor's own raise.  Cancelled, it may have taken effect.
    """

    __slots__ = ("_key", "_link", "_name", "_root")

    def __init__(self, cache: RedisIdSegmentDistributor, root: str) -> None:
        """Describe it; nothing is sent yet.

        Args:
            cache: whose connections and name are used.
            root: the name of the store that leases it.
        """
        self._link = cache._link
        self._name = cache.namespaced_name
        self._root = root.encode(errors="backslashreplace")
        self._key = f"aiocosid:{{{self._name}}}:span".encode()

    async def look(self) -> None:
        """Make sure that the server tells who it is, and allows a span; nothing stays."""
        await self._ask(LOOK)

    async def take(
        self, step: int, floor: int, nonce: bytes, note: Note = UNNOTED
    ) -> Taken | Claimed | Opening:
        """Take a segment, or claim the right to open a span, in the caller's name ``nonce``."""
        about = note.nonce.encode(), note.previous.encode()
        found, *facts = await self._ask(TAKE, step, floor, nonce, CLAIM_MS, *about)
        if found == "taken":
            return Taken(int(facts[0]), int(facts[1]) if facts[1] else None)
        if found == "claimed":
            return Claimed(facts[0], facts[1].encode())
        return Opening(int(facts[0]) / 1000)

    async def open(
        self, claim: bytes, cursor: int, last: int, *, note: Note = UNNOTED, base: int = 0
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
        with translated(self._name, self._key.decode()):
            await self._link.call(
                lambda client: client.execute_command("DEL", self._key, **UNDECODED)
            )

    async def _ask(self, script: Script, *arguments: bytes | int) -> list[str]:
        async def run(client: Any) -> list[str]:  # noqa: ANN401 - the driver's
            reply = await script.run_on(client, (self._key,), self._root, *arguments)
            return [text_of(each) for each in reply]

        with translated(self._name, self._key.decode()):
            reply = await self._link.call(run)
        if reply[0] == "hidden":
            raise StoreIdentityHiddenError(STORE, reply[1])
        return reply
