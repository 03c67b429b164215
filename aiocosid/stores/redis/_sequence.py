"""Grants sequences of a second from counters on Redis or Valkey.

The script has two keys.  The counter of the second is a string with the last granted sequence; the
published script of Java nodes uses it in the same way.  The fence is aiocosid's own hash, which
never expires: ``server`` is the server of these counters, ``opens`` the first second from which
sequences are granted, ``seen`` the highest TIME so far in seconds, ``reach`` the largest tolerance
+ margin of any node, and ``granted:<second>`` the last sequence granted to aiocosid, for each
second that may still be requested.

Its arguments are the second, the size, the highest sequence, and the tolerance, the margin and the
counter's ttl in seconds.  It returns ``{status, first, last, now, opens}``.  The status is one of:
granted, always from this second; spent: the second is used up, and the counter is unchanged;
skewed: TIME and the second differ by more than the tolerance; fenced: the second is below
``opens``, and its counter may have been lost.  If the server hides its identity, the script returns
``{-1, why}`` and writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...abc import SequenceDistributor, SequenceReply
from ...abc.checks import check_text
from ...errors import InvalidArgumentError, StoreIdentityHiddenError
from .._durability import DurabilityCheck
from .._sequence_rules import DEFAULT_TTL, SequenceAnswer, check_reach
from ._demands import STORE, evictions_of
from ._link import Grants, script_of, text_of

if TYPE_CHECKING:
    from ._link import RedisLink

__all__ = ("DEFAULT_MARGIN", "DEFAULT_TTL", "RedisSequenceDistributor")

DEFAULT_MARGIN: Final = 1  # seconds by which the clocks of two servers may differ

SECOND: Final = "<second>"
FENCE: Final = "fence"

GRANT: Final = script_of("server", "sequence_grant")


class RedisSequenceDistributor(SequenceDistributor):
    """One counter on Redis or Valkey for each second: the last sequence granted from it.

    `RedisStore.sequence_distributor` creates it.  Runs on asyncio.  A server that was restarted,
    emptied or failed over, or whose databases were swapped, may have lost counters; a fence, in a
    separate hash, keeps it from granting sequences of the affected seconds.  The script reads the
    server's identity with ``INFO``, which the user must be allowed to run.
    """

    __slots__ = ("_grants", "_link", "_prefix", "_settings", "_suffix")

    store = STORE

    def __init__(
        self,
        link: RedisLink,
        *,
        key: str | None,
        margin: int,
        ttl: int,
        **options: Any,  # noqa: ANN401 - options of any sequence distributor
    ) -> None:
        """Describe the counters; see `RedisStore.sequence_distributor`."""
        super().__init__(**options)
        check_reach(self.tolerance, margin, ttl)
        self._settings = self.max_sequence, self.tolerance, margin, ttl
        self._prefix, self._suffix = _parts(key, self.namespaced_name)
        self._link = link
        # The check is separate, because a counter that never expires has other risks.
        self._grants = Grants(DurabilityCheck(link.demands.durability), evictions_of)
        if link.is_cluster:
            self._check_key()

    async def grant(self, second: int, size: int) -> SequenceReply:
        """Reserve sequences; see `aiocosid.abc.SequenceDistributor.grant`.

        A cancelled call may have taken effect on the server; its connection is closed.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            ClockSkewError: the server's clock and ``second`` differ by more than the tolerance.
            CorruptCounterError: the key does not hold a counter; nothing was written.
            StoreIdentityHiddenError: the server hides its identity.
            StoreUnavailableError: the server cannot be reached, does not answer, is loading or
                failing over, or too few replicas confirmed the grant.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the connections belong to the parent process.
        """
        self._check(second, size)
        keys = self._key(second), self._key(FENCE)
        status, *facts = await self._link.run(
            GRANT,
            keys,
            *(second, size, *self._settings),
            counter=self.namespaced_name,
            grants=self._grants,
        )
        if status < 0:
            raise StoreIdentityHiddenError(STORE, text_of(facts[0]))
        return SequenceAnswer(status, *facts).reply_to(self, second)

    def _key(self, second: int | str) -> bytes:
        return f"{self._prefix}{second}{self._suffix}".encode()

    def _check_key(self) -> None:
        """Raise if a cluster would keep counter and fence in different slots."""
        tags = {_hash_tag(self._key(each)) for each in (1, 2, FENCE)}
        if len(tags) > 1 or b"" in tags:
            rule = f"needs a hash tag on a cluster, as in '{{order}}:{SECOND}'"
            raise InvalidArgumentError("key", text_of(self._key(SECOND)), rule)

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child, with new connections.

        Raises:
            ForkedError: the client was passed in and belongs to the parent process.
        """
        await self._link.aopen()


def _parts(key: object, namespaced_name: str) -> tuple[str, str]:
    """Return the parts of the key before and after the second."""
    if key is None:
        return f"aiocosid:{{{namespaced_name}}}:", ""
    check_text("key", key)
    if not isinstance(key, str) or key.count(SECOND) != 1:
        raise InvalidArgumentError("key", key, f"must be a string with {SECOND} once")
    prefix, _, suffix = key.partition(SECOND)
    return prefix, suffix


def _hash_tag(key: bytes) -> bytes:
    """Return the part of the key that a cluster hashes; empty if that is the whole key."""
    tag, brace, _ = key.partition(b"{")[2].partition(b"}")
    return tag if brace else b""
