"""Hands out segments of spans that a durable store has leased to a fast one."""

from __future__ import annotations

import logging
import random
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeVar

from ..._clock import SYSTEM_CLOCK
from ...abc import MAX_ID, IdSegmentDistributor
from ...abc._ids import check_integer, check_seconds
from ...errors import (
    CosIdError,
    IdOverflowError,
    InvalidArgumentError,
    StoreError,
    StoreUnavailableError,
)
from ...events import CacheFound, CacheLost, Instruments, SpanLeased
from .._arguments import check_step
from .._give_back import GrantRun
from .._watermark import HighWater
from ..redis import RedisIdSegmentDistributor
from ..redis._errors import STORE
from ..redis._span import UNNOTED, Claimed, Span, Taken
from ._call import Call
from ._outage import Outage
from ._root_name import name_of_root
from ._statistics import Tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...abc import Clock
    from ...events import Instrument
    from .._give_back import Note
    from ._statistics import TieredStatistics

__all__ = ("CACHE_TIMEOUT", "MAX_SPAN", "PAUSE", "SPAN", "TieredIdSegmentDistributor")

SPAN: Final = 1_000_000  # ids
MAX_SPAN: Final = 2**40  # ids; 8 million of them until the last id
# Twice this and a trip to the root are below the 2 s after which a generator gives a call up.
CACHE_TIMEOUT: Final = 0.75  # seconds
PAUSE: Final = 1.0  # seconds

POLL: Final = (0.002, 0.05)  # seconds until somebody else's span is looked for: first, at most
RELEASE_TIMEOUT: Final = 0.25  # seconds that a cancelled call takes to give its claim back

T = TypeVar("T")

_logger = logging.getLogger("aiocosid")


class TieredIdSegmentDistributor(IdSegmentDistributor):
    """A counter in a durable store, handed out by Redis or Valkey span by span.

    Runs on asyncio.  The root's counter is CosId's own, and others may use it at the same time:
    each span is one step of it.  What lies in Redis is ``aiocosid:{<namespace>.<name>}:span``;
    CosId's key there is not touched.  While Redis does not answer, segments come from the root.

    Attributes:
        span: ids per span.
        cache_timeout: seconds that the cache has to answer.
    """

    __slots__ = (
        *("_cache", "_clock", "_closings", "_instrument", "_outage", "_root", "_run", "_span"),
        "_tally",
        "_water",
        *("cache_timeout", "span"),
    )

    store = "tiered"

    def __init__(
        self,
        root: IdSegmentDistributor,
        cache: RedisIdSegmentDistributor,
        *,
        span: int = SPAN,
        cache_timeout: float = CACHE_TIMEOUT,
        pause: float = PAUSE,
        root_name: str | None = None,
        instrument: Instrument | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Put one counter under another; nothing is sent yet.

        Args:
            root: the counter that counts, in a store that loses no writes; not in Redis.
            cache: where spans are handed out; its namespace and name have to be the root's.  Of it
                only the connection and the name are used.
            span: ids per span, from the root's step to 2^40: one trip to the root each, and what is
                lost at most when Redis forgets.  A request for more goes to the root.
            cache_timeout: seconds after which the root is asked instead.
            pause: seconds for which Redis is not asked after it did not answer.
            root_name: tells roots apart whose counters have equal names on one Redis; the same in
                all processes, and never one name for two databases: their ids would come twice.
                Not needed for a SQLite file that was opened by its URL, whose name is that of host
                and path.
            instrument: receives the events ``SpanLeased``, ``CacheLost`` and ``CacheFound``.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range, the names are not the same, or
                ``root_name`` is missing.
        """
        _check_both(root, cache)
        check_integer("span", span, at_least=1, at_most=MAX_SPAN)
        if span < root.step:
            expected = f"at least the step, {root.step}: larger requests go past Redis"
            raise InvalidArgumentError("span", span, expected=expected)
        check_seconds("cache_timeout", cache_timeout)
        check_seconds("pause", pause, or_zero=True)
        super().__init__(
            namespace=root.namespace, name=root.name, offset=root.offset, step=root.step
        )
        self.span, self.cache_timeout = span, cache_timeout
        self._root, self._cache = root, cache
        self._span = Span(cache, name_of_root(root, root_name))
        self._clock, self._outage, self._closings = clock, Outage(clock, pause), 0
        self._instrument = None if instrument is None else Instruments(instrument)
        self._tally, self._water, self._run = Tally(), HighWater(), GrantRun()

    async def next_max_id(self, step: int) -> int:
        """Take a segment; see `aiocosid.abc.IdSegmentDistributor.next_max_id`.

        A cancelled call may have taken effect, here and there: a segment, or a span, is a gap then.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1; nothing was sent.
            IdOverflowError: the root's counter would pass 2^63-1.
            StoreIdentityHiddenError: Redis does not tell who it is; only before it ever did.
            StoreAuthenticationError: Redis rejects the user, the password or the rights, and never
                answered before; or the root does.
            StoreUnavailableError: the root cannot be reached, and Redis has no span left; or this
                was closed while the call was under way.
            StoreRolledBackError: the root's counter is lower than it was.
            ForkedError: a distributor, or the connections beneath it, are the parent's.
            CosIdError: what else the root raises.
        """
        check_step(step)
        if step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        self._water.ensure_own(repr(self))
        sent = self._water.sent()
        if self._run.is_noted:
            with self._run.call() as note:
                max_id = await self._granted(step, sent, note)
        else:
            max_id = await self._granted(step, sent, UNNOTED)
        self._water.ensure_own(repr(self))  # suspended across a fork: the segment is the parent's
        return self._water.check(self, max_id, step=step, sent=sent)

    async def _granted(self, step: int, sent: int | None, note: Note) -> int:
        call = Call(step, sent, token_hex(16).encode(), self._times_closed, note)
        if step <= self.span and self._outage.is_to_be_asked():
            return await self._from_span(call)
        return await self._from_root(call)

    @property
    def _times_closed(self) -> int:
        return self._closings + self._outage.closings

    def _ensure_open(self, closings: int) -> None:
        """Raise if this was closed since: going on would open what nobody closes."""
        if closings != self._times_closed:
            raise StoreUnavailableError(self.store, "closed while the call was under way")

    async def _from_root(self, call: Call) -> int:
        self._ensure_open(call.closings)
        self._run.forget()  # what lies in the span is no longer on top
        self._tally.root_trips += 1
        max_id = await self._root.next_max_id(call.step)
        self._tally.segments_from_root += 1
        return max_id

    async def _from_span(self, call: Call) -> int:
        try:
            reply = await self._taken(call)
            if isinstance(reply, Taken):
                self._note(call.note, reply.max_id, reply.base)
                return reply.max_id
            if reply is not None:
                last = await self._leased(call, reply.why)
                return await self._opened(call, reply.claim, last)
        except IdOverflowError:  # less than a span is left
            await self._released(call)
        except GeneratorExit:  # thrown away: it may not wait any more
            raise
        except BaseException:
            await self._released(call)
            raise
        return await self._from_root(call)

    def _note(self, note: Note, max_id: int, base: int | None) -> None:
        if base is None:
            self._run.forget()
        else:
            self._run.granted(note, max_id, base)

    async def _taken(self, call: Call) -> Taken | Claimed | None:
        """Return a segment, the duty to open a span, or None: the root is to be asked."""
        until, pause = self._clock.monotonic() + self.cache_timeout, POLL[0]
        asked = call.step, call.sent or 0, call.nonce, call.note
        while True:
            reply = await self._asked(lambda: self._span.take(*asked), call.closings)
            if isinstance(reply, Taken):
                self._tally.segments_from_cache += 1
            if reply is None or isinstance(reply, Taken | Claimed):
                return reply
            # Half of it at least, so that those who wait come one after the other.
            delay = min(reply.left, pause) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            if self._clock.monotonic() + delay > until:
                return None
            await self._clock.sleep(delay)
            pause = min(pause * 2, POLL[1])

    async def _leased(self, call: Call, why: str) -> int:
        """Return the last id of a new span, which is ours alone until it is opened."""
        self._ensure_open(call.closings)
        begin = self._clock.monotonic()
        self._tally.root_trips += 1
        last = await self._root.next_max_id(self.span)
        self._tally.leased(why)
        if self._instrument is not None:
            self._instrument.on_event(
                SpanLeased(
                    namespace=self.namespace,
                    name=self.name,
                    max_id=last,
                    count=self.span,
                    reason=why,
                    took=self._clock.monotonic() - begin,
                )
            )
        return last

    async def _opened(self, call: Call, claim: bytes, last: int) -> int:
        """Take the first segment of a span, and have Redis hand out the rest.

        The segment is ours, whatever becomes of the call: in Redis the span begins behind it.
        """
        # Before it is opened: a root that went backwards has leased what others hold already.
        base = last - self.span
        max_id = self._water.check(self, base + call.step, step=call.step, sent=call.sent)
        reply = await self._asked(
            lambda: self._span.open(claim, max_id, last, note=call.note, base=base), call.closings
        )
        is_open, given_up = reply or (False, 0)
        self._note(call.note, max_id, base if is_open else None)
        self._tally.ids_abandoned += given_up if is_open else last - max_id
        return max_id

    async def _released(self, call: Call) -> None:
        """Let others open a span, if we were to; they would wait for the claim's end else."""
        if self._outage.is_on or call.closings != self._times_closed:
            return
        with (
            suppress(CosIdError),
            self._clock.move_on_after(RELEASE_TIMEOUT, shield=True),
        ):
            await self._span.release(call.nonce)

    async def _asked(self, command: Callable[[], Awaitable[T]], closings: int) -> T | None:
        """Return what the cache answers; None if it does not, which begins an outage."""
        self._ensure_open(closings)
        replies: list[T] = []
        error: StoreError | None = None
        try:
            with self._clock.move_on_after(self.cache_timeout):
                replies.append(await self._answer(command, closings))
        except StoreError as failure:
            self._ensure_open(closings)
            if not (failure.retryable or self._outage.has_answered):
                raise  # it is not set up as it has to be
            error = failure
        if replies:
            self._found()
            return replies[0]
        reason = f"no answer within {self.cache_timeout:g} s"
        self._lost(error or StoreUnavailableError(STORE, reason))
        return None

    async def _answer(self, command: Callable[[], Awaitable[T]], closings: int) -> T:
        """Ask once more if it fails at first: its connection may have been cut while it was idle.

        A segment, or a span, is a gap if the first one took effect.
        """
        try:
            return await command()
        except StoreUnavailableError:
            if self._outage.is_on:
                raise
            self._ensure_open(closings)
        return await command()

    def _found(self) -> None:
        lasted = self._outage.end()
        if lasted is None:
            return
        _logger.info("%r: the cache answers again, after %.1f s", self, lasted)
        if self._instrument is not None:
            self._instrument.on_event(
                CacheFound(namespace=self.namespace, name=self.name, lasted=lasted)
            )

    def _lost(self, error: StoreError) -> None:
        self._tally.cache_failures += 1
        if not self._outage.begin():
            return
        _logger.warning("%r: the cache fails, so segments come from the root: %s", self, error)
        if self._instrument is not None:
            self._instrument.on_event(
                CacheLost(namespace=self.namespace, name=self.name, error=error)
            )

    def resume_above(self, reached: int) -> None:
        """Void a span that is lower; see `aiocosid.abc.IdSegmentDistributor.resume_above`.

        Segments that came from the root lie above a span that is still good.
        """
        self._water.raise_to(reached)

    def allow_give_back(self) -> bool:
        """Have every segment of a span noted from now on, in the span's own key."""
        self._run.is_noted = True
        return True

    async def give_back(self, max_id: int, unused: int) -> int:
        """Put the span's cursor back; see `aiocosid.abc.IdSegmentDistributor.give_back`.

        Of a segment that came from the root directly nothing goes back, nor of one that lies in a
        span of another server, or of another life of it.

        Raises:
            StoreError: Redis refuses, and never answered before.
            ForkedError: a distributor, or the connections beneath it, are the parent's.
        """
        self._water.ensure_own(repr(self))
        offer = self._run.offer(max_id, unused)
        lower = 1 if offer is None else max(offer.lower, 1)  # a cursor of 0 is none
        if offer is None or lower >= max_id or self._outage.is_on:
            return 0
        self._water.lower(lower)
        is_back = await self._asked(
            lambda: self._span.give_back(max_id, lower, offer.nonce.encode()), self._times_closed
        )
        return max_id - lower if is_back else 0

    def statistics(self) -> TieredStatistics:
        """Return what went through this distributor so far."""
        return self._tally.picture(is_cache_up=not self._outage.is_on)

    async def aopen(self) -> None:
        """Get ready in this process, and look whether Redis tells who it is, and allows a span.

        A Redis that cannot be reached is no error: the root serves until it can.

        Raises:
            StoreIdentityHiddenError: Redis does not tell who it is; the error says what to allow.
            StoreError: Redis refuses; it never answered before.
            ForkedError: a client was passed in, and is the parent's.
        """
        self._water.adopt()
        await self._root.aopen()
        await self._cache.aopen()
        if self._outage.is_to_be_asked():
            await self._asked(self._span.look, self._times_closed)

    async def aclose(self) -> None:
        """Close what the root and the cache have opened themselves; clients of others stay open.

        Calls under way end with `StoreUnavailableError`.
        """
        self._closings += 1
        try:
            await self._root.aclose()
        finally:
            await self._cache.aclose()


def _check_both(root: object, cache: object) -> None:
    forgets = RedisIdSegmentDistributor, TieredIdSegmentDistributor
    if not isinstance(root, IdSegmentDistributor) or isinstance(root, forgets):
        expected = (
            "an IdSegmentDistributor on a durable store, no RedisIdSegmentDistributor, whose "
            "server may forget, and no TieredIdSegmentDistributor"
        )
        raise InvalidArgumentError("root", root, expected=expected)
    if root.stride != 1 or root.step_limit is not None:
        raise InvalidArgumentError("root", root, expected="one that grants any range without holes")
    name = root.namespaced_name
    if not isinstance(cache, RedisIdSegmentDistributor) or cache.namespaced_name != name:
        expected = f"a RedisIdSegmentDistributor named {name!r}, as the root is"
        raise InvalidArgumentError("cache", cache, expected=expected)
