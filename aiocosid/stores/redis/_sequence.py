"""Grants sequences of a second from counters on Redis or Valkey.

The script has two keys.  The counter of the second is a string, the last granted sequence; the
published script of Java nodes uses it in the same way.  The fence is a hash of aiocosid's own,
which never expires: ``server`` is the server of these counters, ``opens`` the first second that is
granted from, ``seen`` the highest TIME so far, in s, ``reach`` the largest tolerance + margin of
any node, and ``granted:<second>`` the last sequence granted to aiocosid, for each second that may
still be requested.

Its arguments are the second, the size, the highest sequence, and in seconds the tolerance, the
margin and the counter's ttl.  It returns ``{status, first, last, now, opens}``.  The status is
granted, of this second only; spent: the second is used up, and the counter unchanged; skewed: TIME
and the second differ by more than the tolerance; or fenced: the second is below ``opens``, and its
counter may have been lost.  Or it returns ``{-1, why}`` if the server hides its identity; nothing
was written then.
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
    """Counters on Redis or Valkey, one for each second: the last sequence granted of it.

    `RedisStore.sequence_distributor` creates it.  Runs on asyncio.  A server that was restarted,
    emptied or failed over, or whose databases were swapped, may have lost counters; a fence, in a
    hash of its own, keeps it from granting sequences of the seconds concerned.  The script reads
    the server's identity by ``INFO``, which has to be allowed.
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
        **options: Any,  # noqa: ANN401 - of any distributor of sequences
    ) -> None:
        """Describe the counters; see `RedisStore.sequence_distributor`."""
        super().__init__(**options)
        check_reach(self.tolerance, margin, ttl)
        self._settings = self.max_sequence, self.tolerance, margin, ttl
        self._prefix, self._suffix = _parts(key, self.namespaced_name)
        self._link = link
        # A check of its own: a counter that never expires has other risks.
        self._grants = Grants(DurabilityCheck(link.demands.durability), evictions_of)
        if link.is_cluster:
            self._check_key()

    async def grant(self, second: int, size: int) -> SequenceReply:
        """Take sequences; see `aiocosid.abc.SequenceDistributor.grant`.

        A cancelled call may have taken effect on the server; its connection is closed.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            ClockSkewError: the server's clock and ``second`` differ by more than the tolerance.
            CorruptCounterError: the key holds something else; nothing was written.
            StoreIdentityHiddenError: the server hides its identity.
            StoreUnavailableError: the server cannot be reached, does not answer, is loading or
                failing over, or too few replicas have confirmed the grant.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the connections are the parent's.
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
        """Raise if a cluster would keep counter and fence in two slots."""
        tags = {_hash_tag(self._key(each)) for each in (1, 2, FENCE)}
        if len(tags) > 1 or b"" in tags:
            expected = f"with a hash tag on a cluster, as '{{order}}:{SECOND}'"
            raise InvalidArgumentError("key", text_of(self._key(SECOND)), expected=expected)

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        await self._link.aopen()


def _parts(key: object, namespaced_name: str) -> tuple[str, str]:
    """Return the parts of the key before and after the second."""
    if key is None:
        return f"aiocosid:{{{namespaced_name}}}:", ""
    check_text("key", key)
    if not isinstance(key, str) or key.count(SECOND) != 1:
        raise InvalidArgumentError("key", key, expected=f"a text that holds {SECOND} once")
    prefix, _, suffix = key.partition(SECOND)
    return prefix, suffix


def _hash_tag(key: bytes) -> bytes:
    """Return the part of the key that a cluster hashes; empty if that is the whole key."""
    tag, brace, _ = key.partition(b"{")[2].partition(b"}")
    return tag if brace else b""
