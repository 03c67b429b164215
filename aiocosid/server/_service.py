"""What the server does, whatever protocol asks: ids, segments, and who may have them.

It keeps no state that the store does not have.  A segment is one addition to a counter of the
store; only ids asked for one by one, or by count, come from a generator of this process.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from .._life.clock import SYSTEM_CLOCK, call_bounded
from ..abc import DEFAULT_NAMESPACE, DEFAULT_SAFE_GUARD, IdGenerator
from ..abc.shards import check_shard
from ..errors import (
    CosIdError,
    InvalidArgumentError,
    NotOpenError,
    UnsupportedByStoreError,
    WouldBlock,
)
from ..integrations.asgi import check_health
from ..integrations.source import opened
from ..integrations.state import GeneratorState
from ..provider import ConfiguredProvider, IdProvider
from ..provider.hosting import component_of
from ..segment.generator import SegmentGenerator
from ..stores.counters import reached_by
from ._condition import condition_of
from ._curves import History
from ._hosts import Hosts
from ._meters import Meters
from ._problems import FAILURES, Problem
from ._pulse import Pulse
from ._quotas import Quotas
from ._room import Room
from ._tasks import Tasks
from ._tokens import EVERY, Access, Tokens, TokenScope
from ._unfinished import Unfinished

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AsyncExitStack

    from ..abc import AnyGenerator, IdSegmentDistributor, Provider, Store
    from ..compat.leaf import LeafTags
    from ..integrations.source import Source
    from ..segment import LeafSegmentId
    from ._condition import Condition
    from ._sheets import Sheets
    from ._tokens import Refusal, Token

__all__ = ("COSID_STEP", "Limits", "Service", "StoreCalls", "grant", "has_answered")

audit = logging.getLogger("aiocosid.server.audit")

CALL_TIMEOUT: Final = 2.0
"""Seconds that the store has for one addition; as of a generator's call."""

COSID_STEP: Final = 10**12
"""Ids of one segment of a client of CosId's, whose chain merges up to 10^8 segments of its step.

The client owns all that it asked for, so a request cannot be cut.  Nine million of them reach the
end of a counter.
"""

COUNTERS_KEPT: Final = 10_000
"""Counters whose last value is remembered, so that one that went back is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may ask for; more is refused, never cut.

    Attributes:
        ids: ids of one request.
        step: ids of one segment; a chain that is emptied at full speed asks for 16.8 million.
        name: characters of a name.
        body: bytes of a request's body.
        connections: open connections of each process; further ones are closed at once.
        header_timeout: seconds that a request's head may take, and an idle connection may stay.
        safe_guard: seconds without a renewal before which no client is handed another's machine id,
            whatever it asks for; the longest safe guard of the namespace counts, too.
    """

    ids: int = 100_000
    step: int = 1 << 26
    name: int = 256
    body: int = 65_536
    connections: int = 20_000
    header_timeout: float = 60.0
    safe_guard: float = DEFAULT_SAFE_GUARD


@dataclass(slots=True)
class StoreCalls:
    """Additions to counters of the store, so far.

    Attributes:
        count: all of them.
        failures: those that failed.
        seconds: how long all together have taken; a store in this process takes none.
    """

    count: int = 0
    failures: int = 0
    seconds: float = 0.0


class Service:
    """Ids and segments of one provider and one store, for all protocols.

    Attributes:
        limits: what one request may ask for.
        tokens: who may ask.
        hosts: which names requests without a token may have for this server.
        namespace: of counters that are named without one.
        calls: the additions that it has asked the store for.
        certificate_ms: when its certificate ends, unix time in milliseconds; None without one.
        history: the last ten minutes of this process.
        meters: what it is asked.
        pulse: whether its stores answer.
        room: for answers with many ids.
        quotas: counts what tokens with a quota take.
        sheets: what the other processes of the server know; None if there are none.
        tasks: what goes on beside the requests.
        receipt_key: the secret that proves leases of machine ids; empty for none.
        unfinished: what has arrived of requests that are not whole.
        refused: how often no token was shown, or one that is wrong or has expired.
        is_draining: whether it tells its balancer to send no more requests; it still serves.
    """

    def __init__(
        self,
        source: Source,
        *,
        store: Store | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        tokens: Iterable[Token] = (),
        limits: Limits | None = None,
        create: bool = False,
        unix_tokens: bool = True,
        offers: Iterable[TokenScope] = EVERY,
        hosts: Iterable[str] = (),
        receipt_key: str = "",
    ) -> None:
        self.receipt_key: str = receipt_key
        self.limits: Limits = limits or Limits()
        self.hosts: Hosts = Hosts(hosts)
        self.tokens: Tokens = Tokens(tokens, unix=unix_tokens, offers=offers)
        self.namespace: str = namespace
        self.is_draining: bool = False
        self.calls: StoreCalls = StoreCalls()
        self.pulse: Pulse = Pulse(SYSTEM_CLOCK)
        self.certificate_ms: int | None = None
        self.history: History = History()
        self.meters: Meters = Meters()
        self.sheets: Sheets | None = None
        self.tasks: Tasks = Tasks()
        self.room: Room = Room()
        self.unfinished: Unfinished = Unfinished()
        self.refused: dict[Refusal, int] = {"missing": 0, "wrong": 0, "expired": 0}
        self.quotas: Quotas = Quotas(SYSTEM_CLOCK)
        self._source = source
        self._given_store = store
        self._creates = create
        self._provider: Provider | None = None
        self._store: Store | None = None
        self._created: IdProvider | None = None
        self._counters: OrderedDict[tuple[str, str], IdSegmentDistributor] = OrderedDict()

    def __repr__(self) -> str:
        """Name the default namespace, and show the provider, which says whether it is open."""
        state = "not open" if self._provider is None else f"on {self._provider!r}"
        return f"<{type(self).__name__} {self.namespace} {state}>"

    async def open(self, stack: AsyncExitStack) -> None:
        """Open the provider and a store that was given, and leave their end to the stack.

        Raises:
            CosIdError: as opening either.
        """
        provider = await stack.enter_async_context(opened(self._source, default=False))
        self.adopt(provider)
        if self._given_store is not None:  # it may use the provider's own, so it is closed first
            await stack.enter_async_context(self._given_store)
        if self._creates and self._created is None:
            created = IdProvider(self.store, namespace=self.namespace)
            self._created = await stack.enter_async_context(created)
            self._created.fail_fast()
        stack.push_async_callback(self.tasks.aclose)
        stack.callback(self.tasks.start(partial(self.pulse.beat, self.stores)).cancel)

    def adopt(self, provider: Provider) -> None:
        """Serve from a provider that is open already."""
        self._provider = provider
        self._store = self._given_store
        if isinstance(provider, IdProvider | ConfiguredProvider):
            self._store = self._store or provider.store
        if isinstance(provider, IdProvider) and self._creates:
            self._created = provider

    @property
    def provider(self) -> Provider:
        """The open provider.

        Raises:
            NotOpenError: it is not open.
        """
        if self._provider is None:
            raise NotOpenError("the server's provider")
        return self._provider

    @property
    def store(self) -> Store:
        """The store of segments and machine ids.

        Raises:
            Problem: there is none.
        """
        if self._store is None:
            detail = "the server has no store: give one in its settings"
            raise Problem(HTTPStatus.NOT_IMPLEMENTED, "no-store", detail)
        return self._store

    @property
    def stores(self) -> list[Store]:
        """All its stores; the main one first."""
        provider, main = self.provider, self._store
        found: list[Store] = []
        if isinstance(provider, ConfiguredProvider):
            found += [*provider._stores, *provider._borrowed]
        if main is not None:
            # A store over another one has that one's counters and machine ids.
            beneath = getattr(main, "root", None)
            found = [main, *(each for each in found if each is not main and each is not beneath)]
        return found

    @property
    def states(self) -> dict[str, GeneratorState]:
        """The state of each generator, by its name."""
        provider = self.provider
        return {name: GeneratorState(provider[name].statistics()) for name in provider}

    @property
    def condition(self) -> Condition:
        """What the server can do now."""
        health = None if self._provider is None else check_health(self._provider)
        pulse = self.pulse
        return condition_of(health, pulse.failing, pulse.asked, is_draining=self.is_draining)

    # Who may do what.

    def access(self, secret: str | None, now_ms: int) -> Access:
        """Return what a caller may do.

        Raises:
            Problem: a token is needed, and this one is missing, wrong or has expired.
        """
        found = self.tokens.access(secret, now_ms=now_ms)
        if found is None:
            reason = self.tokens.refusal(secret)
            self.refused[reason] += 1
            is_missing = reason == "missing"
            detail = "a token is needed" if is_missing else "the token is wrong, or has expired"
            challenge = {"www-authenticate": 'Bearer realm="aiocosid"'}
            error = Problem(HTTPStatus.UNAUTHORIZED, "no-access", detail, headers=challenge)
            if not is_missing:
                FAILURES.note(error, "a request was refused", level=logging.WARNING)
            raise error
        return found

    def check(self, access: Access, wanted: TokenScope, name: str = "") -> None:
        """Raise unless a caller may do that with a name.

        Raises:
            Problem: it may not, or the name is too long.
        """
        if len(name) > self.limits.name:
            detail = f"a name has at most {self.limits.name} characters"
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", detail)
        if not access.allows(wanted, name):
            detail = access.refusal(wanted, name)
            raise Problem(HTTPStatus.FORBIDDEN, "not-allowed", detail)

    def note(self, access: Access, what: str) -> None:
        """Write one line of the audit log: who has changed what."""
        audit.info("%s: %s", access.who, what)

    # Ids.

    def known(self, name: str) -> AnyGenerator:
        """Return a generator that is there.

        Raises:
            Problem: there is none of that name.
        """
        try:
            return self.provider[name]
        except KeyError:
            # Not the name itself: nobody has checked it.
            detail = "no generator has that name"
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-name", detail) from None

    async def generator(self, name: str) -> AnyGenerator:
        """Return a generator; create it if the server is configured to.

        Raises:
            Problem: there is none of that name.
            CosIdError: it cannot be created.
        """
        if (tags := self._tags(name)) is not None:
            return await tags.get(name)
        try:
            return self.known(name)
        except Problem:
            if self._created is None:
                raise
        return await self._created.segment_chain(name)

    def _tags(self, name: str) -> LeafTags[LeafSegmentId] | None:
        """Return Leaf's tags, if a name is one of them, and of no generator in the settings.

        By their last reading, as Leaf: no caller makes the server ask the store for unknown names.
        """
        provider = self._provider
        tags = provider.leaf_tags if isinstance(provider, ConfiguredProvider) else None
        if tags is None or name not in tags.names or name in self.provider:
            return None
        return tags

    async def next_ids(
        self, name: str, count: int, shard: int | None = None, *, access: Access
    ) -> list[int] | list[str]:
        """Return exactly ``count`` ids of a generator, at the expense of a caller.

        If the caller goes away, they are a gap, and nobody else gets them.

        Args:
            name: the generator's.
            count: how many.
            shard: the sharding id of all of them; None for the generator's own, if it has one.
            access: the caller's.

        Raises:
            Problem: there is none of that name, or the caller is over its quota.
            CosIdError: there are no ids now; or the count or the shard is outside its range, or the
                generator's ids carry no shard.
        """
        generator = await self.generator(name)
        sharded: Any = generator  # its methods take the shard
        if shard is not None:
            check_shard(sharded, shard)
        elif count == 1 and isinstance(generator, IdGenerator):
            self.quotas.charge(access, name)
            return [await generator.next_id()]
        self._check_size("count", count, self.limits.ids)
        self.quotas.charge(access, name, count)
        taking = generator.next_ids(count) if shard is None else sharded.next_ids(count, shard)
        found: list[int] | list[str] = await taking
        return found

    # Segments.

    async def segment(self, name: str, step: int | None = None, *, access: Access) -> range:
        """Take a segment of the counter that a generator has, by one addition on its store.

        Args:
            name: the generator's name; if there is none, and the server is configured to create
                some, a counter of the service's namespace.
            step: how many ids, from 1 to the limit; by default the counter's own step.
            access: the caller's, at whose expense it is.

        Raises:
            Problem: there is none of that name, or it has no counter; or the caller is over its
                quota.
            CosIdError: the store refuses or cannot be reached; or an argument is refused.
        """
        distributor = await self._distributor(name)
        if step is None:
            row_step = getattr(distributor, "row_step", None)
            step = distributor.step if row_step is None else cast("int", await row_step())
        self._check_size("step", step, self.limits.step)
        most = distributor.step_limit or step
        if step > most:
            raise InvalidArgumentError("step", step, expected=f"from 1 to {most}")
        self.quotas.charge(access, name, step)
        max_id = await grant(distributor, step, self.calls)
        stride = distributor.stride
        return range(max_id - (step - 1) * stride, max_id + 1, stride)

    async def _distributor(self, name: str) -> IdSegmentDistributor:
        tags = self._tags(name)
        try:
            found = component_of(self.known(name) if tags is None else await tags.get(name))
        except Problem:
            if self._created is None:
                raise
            return self.counter(name, namespace=self.namespace)
        if not isinstance(found, SegmentGenerator):
            detail = "this generator has no counter that hands out segments"
            raise Problem(HTTPStatus.CONFLICT, "no-segments", detail)
        return found._distributor

    async def create_counter(self, name: str, *, namespace: str, offset: int) -> int | None:
        """Create a counter whose first id is ``offset + 1``; change nothing if it exists.

        Returns:
            The last id of one that exists; None if it was created.

        Raises:
            Problem: there is no store.
            CosIdError: an argument is refused; the store refuses or cannot be reached.
        """
        with suppress(UnsupportedByStoreError):  # tiered and striped stores cannot look
            found = await self.counter(name, namespace=namespace, offset=offset).peek()
            if found is not None:
                return found
        last = await self.store.begin_counter(namespace=namespace, name=name, offset=offset)
        return None if last == offset else last

    async def next_max_id(
        self,
        name: str,
        *,
        namespace: str,
        step: int,
        access: Access,
        offset: int = 0,
        at_most: int = 0,
    ) -> int:
        """Add to a counter of the store, and return its value: ``(value - step, value]`` is theirs.

        Args:
            name: the counter's name.
            namespace: its namespace.
            step: how many ids, from 1 to the limit.
            access: the caller's, at whose expense they are.
            offset: where a new counter begins.
            at_most: the limit, if it is above the server's.

        Raises:
            Problem: there is no store, or the caller is over its quota.
            CosIdError: the store refuses or cannot be reached; or an argument is refused.
        """
        self._check_size("step", step, max(at_most, self.limits.step))
        counter = self.counter(name, namespace=namespace, offset=offset)
        self.quotas.charge(access, counter.namespaced_name, step)
        max_id = await grant(counter, step, self.calls)
        if step > 1 and counter.stride != 1:
            remedy = "take one id at a time"
            raise UnsupportedByStoreError(
                counter.store, "its segments are not contiguous", remedy=remedy
            )
        return max_id

    def counter(self, name: str, *, namespace: str, offset: int = 0) -> IdSegmentDistributor:
        """Return the distributor of a counter; nothing is sent.

        Raises:
            Problem: there is no store.
            InvalidArgumentError: the name is refused.
        """
        key = namespace, name
        found = self._counters.get(key)
        is_other = offset and found is not None and offset != found.offset
        # Where a counter begins counts only until it has answered; what it answered is kept, or
        # one that went back would not be noticed.
        if found is None or (is_other and not has_answered(found)):
            found = self.store.segment_distributor(namespace=namespace, name=name, offset=offset)
            self._counters[key] = found
            if len(self._counters) > COUNTERS_KEPT:
                self._counters.popitem(last=False)
        else:
            self._counters.move_to_end(key)
        return found

    def _check_size(self, what: str, size: int, at_most: int) -> None:
        if not 1 <= size <= at_most:
            raise InvalidArgumentError(what, size, expected=f"from 1 to {at_most}")


def has_answered(counter: IdSegmentDistributor) -> bool:
    """Return whether a counter's object knows a value of the counter, below which none may come."""
    return reached_by(counter) is not None


async def grant(distributor: IdSegmentDistributor, step: int, calls: StoreCalls) -> int:
    """Add to a counter, within `CALL_TIMEOUT`; without a task where the store is in this process.

    Args:
        distributor: the counter's.
        step: how many ids.
        calls: counts this call.

    Raises:
        CosIdError: as for `IdSegmentDistributor.next_max_id`.
    """
    calls.count += 1
    try:
        return distributor.next_max_id_nowait(step)
    except WouldBlock:
        pass
    began = SYSTEM_CLOCK.monotonic()
    answer = await call_bounded(
        partial(distributor.next_max_id, step),
        store=distributor.store,
        clock=SYSTEM_CLOCK,
        within=CALL_TIMEOUT,
        shield=True,
    )
    calls.seconds += SYSTEM_CLOCK.monotonic() - began
    if isinstance(answer, CosIdError):
        calls.failures += 1
        raise answer
    return answer
