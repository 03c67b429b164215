"""A durable store under a fast one: no id repeats, even if the fast one loses its data.

Requires the ``redis`` extra.  The root grants spans of ids; Redis or Valkey grants segments within
a span, with one script.  A span is valid only on the server that opened it, until that server
restarts.  After a restart, a fail-over or a loss of data, a new span is reserved.
"""

from __future__ import annotations

import getpass
import hashlib
import logging
import os
import random
import secrets
import socket
from collections import Counter as Tally
from contextlib import suppress
from dataclasses import dataclass, fields
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit
from weakref import WeakKeyDictionary

from .._life.clock import SYSTEM_CLOCK, call_bounded
from ..abc import DEFAULT_NAMESPACE, Store
from ..abc.checks import check_above, check_integer, check_seconds, check_text
from ..abc.events import CacheFound, CacheLost, Instruments, SpanLeased
from ..errors import (
    CosIdError,
    IdOverflowError,
    InvalidArgumentError,
    StoreError,
    StoreUnavailableError,
)
from .base import backend_of
from .counters import WatchedDistributor
from .memory import MemoryBackend
from .over import Closings, StoreOverStores
from .redis import RedisStore
from .redis._demands import STORE
from .redis._span import Claimed, Span, SpanTaken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..abc import Clock, Counter
    from ..abc.events import Event, Instrument

__all__ = ("TieredStatistics", "TieredStore")

LOCAL: Final = ("localhost", "127.", "0.", "[::", "%2f", ":")  # a socket's path is percent-encoded
# Options whose names contain these parts do not identify a database.
SECRET: Final = ("password", "timeout", "durability")
# PostgreSQL's driver reads missing parts of the URL from these environment variables.
VARIABLES: Final = (
    *("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGOPTIONS", "PGSERVICE", "PGSERVICEFILE"),
)
DIGITS: Final = 16

_memories: WeakKeyDictionary[MemoryBackend, str] = WeakKeyDictionary()


def name_of_root(store: Store, given: str | None) -> str:
    """Return the given name, or a name that no other root has.

    Two names for one root only cost a span, so a name includes everything that may differ between
    two roots.

    Raises:
        InvalidArgumentError: no name was given, and none can be derived from the root.
    """
    if given is not None:
        check_text("root_name", given)
        return given
    root = store.segment_distributor(name="root")
    kind, _, path = root.store.partition(" ")
    if kind == "sqlite" and path:
        return f"{socket.gethostname()} {path}"
    backend = getattr(root, "_backend", None)
    if isinstance(backend, MemoryBackend):
        return _memories.setdefault(backend, f"memory {secrets.token_hex(8)}")
    rule = (
        f"is required for this {kind} root: choose a name such as 'db1/shop' that is the same in "
        "every process, and that no other root with spans on the same Redis uses"
    )
    raise InvalidArgumentError("root_name", given, rule)


def name_of_url(url: str) -> str | None:
    """Return the name of a server's database, derived from its URL; None for other stores.

    The name consists of user, hosts and path, and a digest of the options, without passwords.
    """
    parts = urlsplit(url)
    if parts.scheme in {"sqlite", "memory"}:
        return None
    login, _, hosts = parts.netloc.rpartition("@")
    user, hosts = login.partition(":")[0], hosts.lower()
    # localhost means another server on each host.
    is_local = any(not each or each.startswith(LOCAL) for each in hosts.split(","))
    here = f"{socket.gethostname()} " if is_local else ""
    return f"{here}{user}@{hosts}{parts.path}{_digest(parts, user)}"


def _digest(parts: SplitResult, user: str) -> str:
    """Return a digest of other differences: a schema on the search path, a socket, a default."""
    query = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
    kept = [pair for pair in query if not any(word in pair[0] for word in SECRET)]
    kept += [(name, os.environ[name]) for name in VARIABLES if os.environ.get(name)]
    if not user:
        with suppress(Exception):  # this user id may have no name
            kept.append(("", getpass.getuser()))
    if not kept:
        return ""
    return " " + hashlib.sha256(repr(sorted(kept)).encode()).hexdigest()[:DIGITS]


# The first and the longest pause between two requests while another caller opens a span, in
# seconds.
POLL: Final = (0.002, 0.05)
RELEASE_TIMEOUT: Final = 0.25  # seconds that a cancelled call may take to release its claim

T = TypeVar("T")

_logger = logging.getLogger("aiocosid")


class Call(NamedTuple):
    """One request for a segment, on its way through Redis and the root.

    Attributes:
        step: ids per segment.
        baseline: the highest id that was known when the call began.
        nonce: the call's name in Redis.
        go_on: raises if the store has been closed since the call began.
    """

    step: int
    baseline: int | None
    nonce: bytes
    go_on: Callable[[], None]


class TieredIdSegmentDistributor(WatchedDistributor):
    """A counter in a durable store, whose ids Redis or Valkey grants span by span.

    Runs on asyncio.  `TieredStore.segment_distributor` creates it.  The root's counter is CosId's
    own, and other programs may use it at the same time: each span is one step of that counter.  The
    key in Redis is ``aiocosid:{<namespace>.<name>}:span``; CosId's key there is not touched.  While
    Redis does not answer, segments come from the root.

    A cancelled call may have taken effect in both stores; then a segment, or a span, is a gap.  In
    addition to the root's errors, a call raises `StoreIdentityHiddenError` if Redis hides its
    identity, and `StoreAuthenticationError` if Redis rejects the login, both only before the first
    answer from Redis.  The root's errors are raised when Redis has no span left.
    """

    __slots__ = ("_closings", "_root", "_span", "_store", "_tally")

    store = "tiered"
    order_risk = "the root and each cache hand out ids of different spans at the same time"

    def __init__(
        self,
        store: TieredStore,
        span_of: Callable[[str], Span],
        closings: Closings,
        **described: Any,  # noqa: ANN401 - the contract's options
    ) -> None:
        """Describe a counter of both stores; nothing is sent yet.

        Args:
            store: the tiered store.
            span_of: returns the span of a counter by its ``{namespace}.{name}``.
            closings: the closings of this counter and of both stores.
            **described: as for `aiocosid.abc.IdSegmentDistributor`.

        Raises:
            InvalidArgumentError: an argument is outside its range, ``step`` is above the span, or
                the root does not grant contiguous ranges.
        """
        root = store.root.segment_distributor(**described)
        if store.span < root.step:
            rule = f"must be at least the step, {root.step}: larger requests bypass Redis"
            raise InvalidArgumentError("span", store.span, rule)
        if root.stride != 1 or root.step_limit is not None:
            raise InvalidArgumentError("root", root, "must grant contiguous ranges of any length")
        super().__init__(
            namespace=root.namespace, name=root.name, offset=root.offset, step=root.step
        )
        self._store, self._root, self._tally = store, root, TierTally()
        self._closings = closings
        self._span = span_of(root.namespaced_name)

    async def _grant(self, step: int) -> int:
        go_on = self._closings.watch(self.store)
        nonce = token_hex(16).encode()
        call = Call(step, self._water.baseline(), nonce, go_on)
        if step <= self._store.span and self._store.outage.is_to_be_asked():
            return await self._from_span(call)
        return await self._from_root(call)

    async def _from_root(self, call: Call) -> int:
        call.go_on()
        self._tally["root_trips"] += 1
        max_id = await self._root.next_max_id(call.step)
        self._tally["segments_from_root"] += 1
        return max_id

    async def _from_span(self, call: Call) -> int:
        try:
            reply = await self._taken(call)
            if isinstance(reply, SpanTaken):
                return reply.max_id
            if reply is not None:
                last = await self._leased(call, reply.why)
                return await self._opened(call, reply.claim, last)
        except IdOverflowError:  # the counter has fewer ids left than a span
            await self._released(call)
        except GeneratorExit:  # the coroutine is being closed and may no longer wait
            raise
        except BaseException:
            await self._released(call)
            raise
        return await self._from_root(call)

    async def _taken(self, call: Call) -> SpanTaken | Claimed | None:
        """Return a segment, a claim to open a span, or None, which means: call the root."""
        clock, pause = self._store.clock, POLL[0]
        until = clock.monotonic() + self._store.cache_timeout
        request = call.step, call.baseline or 0, call.nonce
        while True:
            reply = await self._asked(lambda: self._span.take(*request), call.go_on)
            if isinstance(reply, SpanTaken):
                self._tally["segments_from_cache"] += 1
            if reply is None or isinstance(reply, SpanTaken | Claimed):
                return reply
            # The delay is random, but at least half the pause, so that the waiting calls do not
            # retry at once.
            delay = min(reply.left, pause) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            if clock.monotonic() + delay > until:
                return None
            await clock.sleep(delay)
            pause = min(pause * 2, POLL[1])

    async def _leased(self, call: Call, why: str) -> int:
        """Return the last id of a new span, which belongs to this call alone until it is opened."""
        call.go_on()
        clock, span = self._store.clock, self._store.span
        begin = clock.monotonic()
        self._tally["root_trips"] += 1
        last = await self._root.next_max_id(span)
        self._tally.update(("spans", SPANS[why]))
        took = clock.monotonic() - begin
        self._tell(SpanLeased, max_id=last, count=span, reason=why, took=took)
        return last

    async def _opened(self, call: Call, claim: bytes, last: int) -> int:
        """Take the first segment of a span, and let Redis grant the rest.

        The segment belongs to this call, whatever the result: in Redis the span begins after it.
        """
        # This must precede the opening: a root that went backwards has granted ids that others
        # already have.
        base = last - self._store.span
        max_id = self._water.check(self, base + call.step, step=call.step, baseline=call.baseline)
        reply = await self._asked(lambda: self._span.open(claim, max_id, last), call.go_on)
        is_open, given_up = reply or (False, 0)
        self._tally["ids_abandoned"] += given_up if is_open else last - max_id
        return max_id

    async def _released(self, call: Call) -> None:
        """Release this call's claim; otherwise other callers would wait until it ends."""
        if self._store.outage.is_on:
            return
        with suppress(CosIdError), self._store.clock.move_on_after(RELEASE_TIMEOUT, shield=True):
            call.go_on()
            await self._span.release(call.nonce)

    async def _asked(
        self, command: Callable[[], Awaitable[T]], go_on: Callable[[], None]
    ) -> T | None:
        """Return the cache's answer; None if there is none, which starts an outage."""
        go_on()
        store = self._store

        async def call() -> T:
            # There is one retry, because an idle connection may have been closed.  If the first
            # attempt took effect, its segment or span is a gap.
            try:
                return await command()
            except StoreUnavailableError:
                if store.outage.is_on:
                    raise
            go_on()
            return await command()

        answer = await call_bounded(
            call, store=STORE, clock=store.clock, within=store.cache_timeout
        )
        if not isinstance(answer, CosIdError):
            self._found()
            return answer
        go_on()
        is_set_up = store.outage.has_answered or answer.retryable
        if not (is_set_up and isinstance(answer, StoreError)):
            raise answer
        self._lost(answer)
        return None

    def _found(self) -> None:
        lasted = self._store.outage.end()
        if lasted is not None:
            _logger.info("%r: the cache answers again, after %.1f s", self, lasted)
            self._tell(CacheFound, lasted=lasted)

    def _lost(self, error: StoreError) -> None:
        self._tally["cache_failures"] += 1
        if self._store.outage.begin():
            _logger.warning(
                "%r: the cache is failing, so segments come from the root: %s", self, error
            )
            self._tell(CacheLost, error=error)

    def _tell(self, kind: Callable[..., Event], **facts: object) -> None:
        self._store.instrument.on_event(kind(namespace=self.namespace, name=self.name, **facts))

    def statistics(self) -> TieredStatistics:
        """Return the statistics of this distributor so far."""
        return self._tally.picture(is_cache_up=not self._store.outage.is_on)

    async def aopen(self) -> None:
        """Get ready in this process, and check that Redis shows its identity and allows a span.

        An unreachable Redis is not an error: the root serves until Redis can be reached.

        Raises:
            StoreIdentityHiddenError: Redis hides its identity; the error says what to allow.
            StoreError: Redis refuses, and has never answered before.
            ForkedError: a client was passed in and belongs to the parent process.
        """
        await super().aopen()
        await self._root.aopen()
        await self._store.cache.aopen()
        if self._store.outage.is_to_be_asked():
            await self._asked(self._span.refresh, self._closings.watch(self.store))

    async def aclose(self) -> None:
        """Close what the root's distributor itself opened; the cache stays open.

        Running calls end with `StoreUnavailableError`.
        """
        self._closings.record()
        await self._root.aclose()


SPANS: Final = {
    "missing": "spans_missing",
    "server": "spans_of_another_server",
    "damaged": "spans_damaged",
    "behind": "spans_behind",
    "left": "spans_used_up",
}
"""Redis's reason for a new span, and the statistics field that counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStatistics:
    """The state of a `TieredStore`'s distributor at one moment; it counts its own calls.

    Attributes:
        is_cache_up: whether the last call to the cache succeeded.
        cache_failures: calls to the cache that failed.
        segments_from_cache: segments within a span.
        segments_from_root: segments directly from the root.
        root_trips: calls to the root, for spans and for segments.
        spans: spans reserved.
        spans_missing: spans reserved because the cache held none.
        spans_of_another_server: spans reserved because the cache's span was opened by another
            server, or before a restart.
        spans_damaged: spans reserved because the cache's value was not a span.
        spans_behind: spans reserved because the cache's span was behind an id that this distributor
            has seen.
        spans_used_up: spans reserved because too few ids were left.
        ids_abandoned: ids in abandoned spans, as far as known.
    """

    is_cache_up: bool
    cache_failures: int
    segments_from_cache: int
    segments_from_root: int
    root_trips: int
    spans: int
    spans_missing: int
    spans_of_another_server: int
    spans_damaged: int
    spans_behind: int
    spans_used_up: int
    ids_abandoned: int


class TierTally(Tally[str]):
    """The counters of the statistics, by name."""

    def picture(self, *, is_cache_up: bool) -> TieredStatistics:
        """Return the counts so far."""
        names = [field.name for field in fields(TieredStatistics) if field.name != "is_cache_up"]
        return TieredStatistics(is_cache_up=is_cache_up, **{name: self[name] for name in names})


class Outage:
    """The state of a cache, shared by the distributors of one store.

    Attributes:
        has_answered: whether the cache has ever answered, which shows that its setup is correct.
    """

    __slots__ = ("_again_at", "_clock", "_pause", "_since", "has_answered")

    def __init__(self, clock: Clock, pause: float) -> None:
        """Start with a healthy cache.

        Args:
            clock: the time source.
            pause: seconds for which the cache is not asked after a failure.
        """
        self.has_answered: bool = False
        self._clock = clock
        self._pause = pause
        self._since: float | None = None
        self._again_at = 0.0

    @property
    def is_on(self) -> bool:
        """Whether the last call to the cache failed."""
        return self._since is not None

    def is_to_be_asked(self) -> bool:
        """Return whether to ask the cache: there is no outage, or its pause is over.

        During an outage only one caller may ask after each pause, because a call to a cache that
        does not answer takes the whole timeout.
        """
        if self._since is None:
            return True
        now = self._clock.monotonic()
        if now < self._again_at:
            return False
        self._again_at = now + self._pause
        return True

    def begin(self) -> bool:
        """Record a failure; return whether it is the first one in a row."""
        now, is_new = self._clock.monotonic(), self._since is None
        self._again_at = now + self._pause
        if is_new:
            self._since = now
        return is_new

    def end(self) -> float | None:
        """Record an answer; return the seconds that the outage lasted, None if there was none."""
        self.has_answered = True
        since, self._since = self._since, None
        return None if since is None else self._clock.monotonic() - since


SPAN: Final = 1_000_000  # ids
MAX_SPAN: Final = 2**40  # ids; the id range holds 8 million such spans
# Twice this value and a call to the root fit into the 2 s timeout of a generator's call.
CACHE_TIMEOUT: Final = 0.75  # seconds
PAUSE: Final = 1.0  # seconds


class TieredStore(StoreOverStores[TieredIdSegmentDistributor]):
    """Counters of a durable store, whose ids Redis or Valkey grants span by span.

    Machine ids, tables and the counters' values are kept in the root.

    Attributes:
        root: the durable store.
        cache: the Redis or Valkey store that grants the ids of spans.
        span: ids per span.
        cache_timeout: seconds within which the cache must answer.
        clock: the time source.
        instrument: receives events about spans and outages.
        outage: whether the cache answers; shared by all distributors.
    """

    __slots__ = (
        *("_root_name", "cache", "cache_timeout", "clock", "instrument", "outage", "root", "span"),
    )

    def __init__(
        self,
        root: Store,
        cache: RedisStore,
        *,
        span: int = SPAN,
        cache_timeout: float = CACHE_TIMEOUT,
        pause: float = PAUSE,
        root_name: str | None = None,
        owns_stores: bool = False,
        instrument: Instrument | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Combine two stores; nothing is sent yet.

        Args:
            root: the durable store, which must lose no writes; not Redis.
            cache: the Redis or Valkey store that grants the ids of spans, under the root's name.
            span: ids per span of each counter, from its step to 2^40.  Each span is one call to the
                root, and at most one span is lost when Redis loses data.  Requests for more ids go
                to the root.
            cache_timeout: seconds to wait for Redis before the root is called instead.
            pause: seconds for which Redis is not called after it failed to answer.
            root_name: distinguishes roots whose counters have equal names on one Redis.  It must be
                the same in all processes, and must differ between databases; otherwise ids repeat.
                It is not needed for a SQLite file that was opened with its URL (the default is host
                and path), nor for a server whose URL is given in ``tiered:`` or in settings (the
                default is the URL without passwords).
            owns_stores: whether `aclose` closes both stores.
            instrument: receives the events ``SpanLeased``, ``CacheLost`` and ``CacheFound``.
            clock: the time source; the system's clock by default.

        Raises:
            InvalidArgumentError: an argument is outside its range, or ``root_name`` is missing.
        """
        _check_both(root, cache)
        check_integer("span", span, at_least=1, at_most=MAX_SPAN)
        check_seconds("cache_timeout", cache_timeout)
        check_seconds("pause", pause, or_zero=True)
        super().__init__((root, cache), owns_stores=owns_stores)
        self.root: Store = root
        self.cache: RedisStore = cache
        self._root_name = name_of_root(root, root_name)
        self.span: int = span
        self.cache_timeout: float = cache_timeout
        self.clock: Clock = clock
        self.outage: Outage = Outage(clock, pause)
        self.instrument: Instruments = Instruments(*(() if instrument is None else (instrument,)))

    def __repr__(self) -> str:
        """Show both stores, without credentials."""
        return f"<{type(self).__name__} {self.cache!r} on {self.root!r}>"

    def _span_of(self, name: str) -> Span:
        """Return the span of a counter by its ``{namespace}.{name}``."""
        return Span(backend_of(self.cache).link, name, self._root_name)

    def _counter(self, **described: Any) -> TieredIdSegmentDistributor:  # noqa: ANN401 - the contract's options
        return TieredIdSegmentDistributor(
            self, self._span_of, Closings(self._closings), **described
        )

    @property
    def has_witness(self) -> bool:
        """Whether the root can tell data that never existed from data that was lost."""
        return self.root.has_witness

    async def set_floor(
        self, *, namespace: str = DEFAULT_NAMESPACE, name: str, above: int, create: bool = True
    ) -> Counter:
        """Raise the root's counter to ``above`` if it is lower or missing, and end the span.

        A cancelled or failed call may have taken effect in the root while the span in Redis is
        still in use.  Repeat the call; this is safe.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CounterMissingError: there is no such counter, and ``create`` is False.
            StoreError: the root or Redis refuses or cannot be reached.
            ForkedError: the connections belong to the parent process.
        """
        check_above(above)
        raised = await self.root.set_floor(
            namespace=namespace, name=name, above=above, create=create
        )
        await self._span_of(raised.namespaced_name).void()
        return raised

    def _holder(self) -> Store:
        return self.root


def _check_both(root: object, cache: object) -> None:
    if not isinstance(root, Store) or isinstance(root, RedisStore | TieredStore):
        rule = "must be a durable store, neither a RedisStore nor a TieredStore"
        raise InvalidArgumentError("root", root, rule)
    if not isinstance(cache, RedisStore):
        raise InvalidArgumentError("cache", cache, "must be a RedisStore")
