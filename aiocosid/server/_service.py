"""The service behind all protocols: ids, segments, and who may have them.

It is stateless: all state is in the store.  A segment is one addition to a counter of the store;
only ids that are requested one by one, or by count, come from a generator in this process.
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
"""Seconds within which the store must complete one addition, as for a generator's call."""

COSID_STEP: Final = 10**12
"""Maximum ids in one segment for a CosId client, whose chain merges up to 10^8 segments of its
step.

The client assumes that it owns all ids that it requested, so a request cannot be shortened.  Nine
million such segments exhaust a counter.
"""

COUNTERS_KEPT: Final = 10_000
"""How many counters' last values are remembered, so that a counter that went backwards is detected.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one request; a larger request is refused, never shortened.

    Attributes:
        ids: maximum ids per request.
        step: maximum ids per segment; a chain that is used at full speed requests 16.8 million.
        name: maximum characters of a name.
        body: maximum bytes of a request's body.
        connections: maximum open connections of each process; further ones are closed at once.
        header_timeout: seconds that a request's head may take, and that an idle connection may stay
            open.
        safe_guard: the minimum seconds without a renewal before a client can be granted another's
            machine id, whatever it asks for; the namespace's longest safe guard applies too.
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
    """The additions to the store's counters so far.

    Attributes:
        count: the number of additions.
        failures: the number of additions that failed.
        seconds: the seconds that all of them took; a store in this process takes none.
    """

    count: int = 0
    failures: int = 0
    seconds: float = 0.0


class Service:
    """Ids and segments of one provider and one store, for all protocols.

    Attributes:
        limits: the limits of one request.
        tokens: the server's tokens.
        hosts: the host names that requests without a token may use for this server.
        namespace: the namespace of counters that are named without one.
        calls: the additions that it has requested from the store.
        certificate_ms: when its certificate expires, unix time in milliseconds; None without one.
        history: the last ten minutes of this process.
        meters: counts its requests.
        pulse: whether its stores answer.
        room: the capacity for answers with many ids.
        quotas: counts what tokens with a quota take.
        sheets: the figures of the server's other processes; None if there are none.
        tasks: the tasks that run alongside the requests.
        receipt_key: the secret that proves leases of machine ids; empty for none.
        unfinished: the received parts of incomplete requests.
        refused: how often a token was missing, wrong or expired.
        is_draining: whether it tells its load balancer to send no more requests; it still serves.
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
        """Open the provider, and the store if one was given; the stack closes them.

        Raises:
            CosIdError: as for opening either of them.
        """
        provider = await stack.enter_async_context(opened(self._source, default=False))
        self.adopt(provider)
        if self._given_store is not None:  # it may use the provider's store, so it is closed first
            await stack.enter_async_context(self._given_store)
        if self._creates and self._created is None:
            created = IdProvider(self.store, namespace=self.namespace)
            self._created = await stack.enter_async_context(created)
            self._created.fail_fast()
        stack.push_async_callback(self.tasks.aclose)
        stack.callback(self.tasks.start(partial(self.pulse.beat, self.stores)).cancel)

    def adopt(self, provider: Provider) -> None:
        """Serve from a provider that is already open."""
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
            NotOpenError: the provider is not open.
        """
        if self._provider is None:
            raise NotOpenError("the server's provider")
        return self._provider

    @property
    def store(self) -> Store:
        """The store of segments and machine ids.

        Raises:
            Problem: there is no store.
        """
        if self._store is None:
            detail = "the server has no store: give one in its settings"
            raise Problem(HTTPStatus.NOT_IMPLEMENTED, "no-store", detail)
        return self._store

    @property
    def stores(self) -> list[Store]:
        """All its stores, with the main one first."""
        provider, main = self.provider, self._store
        found: list[Store] = []
        if isinstance(provider, ConfiguredProvider):
            found += [*provider._stores, *provider._borrowed]
        if main is not None:
            # A store over another store shows that store's counters and machine ids.
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
            Problem: a token is needed, and this one is missing, wrong or expired.
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
        """Raise unless a caller may do this with a name.

        Raises:
            Problem: the caller may not do this, or the name is too long.
        """
        if len(name) > self.limits.name:
            detail = f"a name may have at most {self.limits.name} characters"
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", detail)
        if not access.allows(wanted, name):
            detail = access.refusal(wanted, name)
            raise Problem(HTTPStatus.FORBIDDEN, "not-allowed", detail)

    def note(self, access: Access, what: str) -> None:
        """Write one line to the audit log: who changed what."""
        audit.info("%s: %s", access.who, what)

    # Ids.

    def known(self, name: str) -> AnyGenerator:
        """Return a generator that exists.

        Raises:
            Problem: there is no generator with that name.
        """
        try:
            return self.provider[name]
        except KeyError:
            # The name itself is not shown, because it has not been checked.
            detail = "no generator has that name"
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-name", detail) from None

    async def generator(self, name: str) -> AnyGenerator:
        """Return a generator; create it if the server is configured to do so.

        Raises:
            Problem: there is no generator with that name.
            CosIdError: the generator cannot be created.
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
        """Return Leaf's tags if the name is one of them and of no generator in the settings.

        As in Leaf, it uses the tags that were read last, so no caller can make the server ask the
        store for unknown names.
        """
        provider = self._provider
        tags = provider.leaf_tags if isinstance(provider, ConfiguredProvider) else None
        if tags is None or name not in tags.names or name in self.provider:
            return None
        return tags

    async def next_ids(
        self, name: str, count: int, shard: int | None = None, *, access: Access
    ) -> list[int] | list[str]:
        """Return exactly ``count`` ids of a generator, charged to the caller's quota.

        If the caller disconnects, the ids are a gap, and no other caller gets them.

        Args:
            name: the generator's name.
            count: the number of ids.
            shard: the sharding id of all of them; None for the generator's own, if it has one.
            access: the caller's access.

        Raises:
            Problem: there is no generator with that name, or the caller is over its quota.
            CosIdError: there are no ids now; or the count or the shard is outside its range, or the
                generator's ids have no shard.
        """
        generator = await self.generator(name)
        sharded: Any = generator  # its methods accept a shard
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
        """Take a segment of a generator's counter, with one addition on its store.

        Args:
            name: the generator's name; if there is no such generator, and the server is configured
                to create them, a counter in the service's namespace.
            step: the number of ids, from 1 to the limit; by default the counter's own step.
            access: the caller's access, whose quota is charged.

        Raises:
            Problem: there is no generator with that name, or it has no counter; or the caller is
                over its quota.
            CosIdError: the store refuses or cannot be reached; or an argument is not valid.
        """
        distributor = await self._distributor(name)
        if step is None:
            row_step = getattr(distributor, "row_step", None)
            step = distributor.step if row_step is None else cast("int", await row_step())
        self._check_size("step", step, self.limits.step)
        most = distributor.step_limit or step
        if step > most:
            raise InvalidArgumentError("step", step, f"must be from 1 to {most}")
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
            The last id of an existing counter; None if the counter was created.

        Raises:
            Problem: there is no store.
            CosIdError: an argument is not valid; the store refuses or cannot be reached.
        """
        with suppress(UnsupportedByStoreError):  # tiered and striped stores cannot read a counter
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
        """Add to a counter, and return its value: ``(value - step, value]`` belongs to the caller.

        Args:
            name: the counter's name.
            namespace: its namespace.
            step: the number of ids, from 1 to the limit.
            access: the caller's access, whose quota is charged.
            offset: where a new counter begins.
            at_most: the limit, if it is above the server's limit.

        Raises:
            Problem: there is no store, or the caller is over its quota.
            CosIdError: the store refuses or cannot be reached; or an argument is not valid.
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
            InvalidArgumentError: the name is not valid.
        """
        key = namespace, name
        found = self._counters.get(key)
        is_other = offset and found is not None and offset != found.offset
        # The offset matters only until the counter has answered.  From then on this object is kept,
        # because otherwise a counter that went backwards would not be detected.
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
            raise InvalidArgumentError(what, size, f"must be from 1 to {at_most}")


def has_answered(counter: IdSegmentDistributor) -> bool:
    """Return whether a counter's object has seen a value; no later value may be lower."""
    return reached_by(counter) is not None


async def grant(distributor: IdSegmentDistributor, step: int, calls: StoreCalls) -> int:
    """Add to a counter within `CALL_TIMEOUT`; needs no task if the store is in this process.

    Args:
        distributor: the counter's distributor.
        step: the number of ids.
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
