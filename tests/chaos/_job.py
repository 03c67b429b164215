"""What a worker is told to do, as JSON, and how it opens what it is told to open."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Self, TypedDict, cast

import aiocosid
from aiocosid.abc import IdGenerator, Store
from aiocosid.abc.events import Instrument
from aiocosid.machine import MachineIdLease
from aiocosid.snowflake import ShardedId, ShardedLayout, SnowflakeId, SnowflakeLayout
from tests.published import EPOCH_MS, PublishedId

from ._history import History, RecordedGenerator

NAMESPACE: Final = "chaos"


class CounterOptions(TypedDict):
    """The options that a chain and a `SegmentId` have alike."""

    step: int
    offset: int
    wait_timeout: float


@dataclass(frozen=True, kw_only=True)
class Place:
    """A store, by URL; with a ``cache`` before it a durable root under a fast store.

    Attributes:
        url: the store, or the root.
        cache: the Redis that hands out segments of the root's spans, or none.
        span: ids that the root leases at once.
    """

    url: str
    cache: str = ""
    span: int = 1_000_000

    @asynccontextmanager
    async def opened(self, instrument: Instrument | None = None) -> AsyncGenerator[Store]:
        """Open it; close it at the end."""
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(aiocosid.store_from_url(self.url))
            if self.cache:
                from aiocosid.stores.redis import RedisStore
                from aiocosid.stores.tiered import TieredStore

                cache = await stack.enter_async_context(RedisStore.from_url(self.cache))
                store = TieredStore(store, cache, span=self.span, instrument=instrument)
            yield store


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one worker does until it is told to stop.

    Attributes:
        folder: where its notes go.
        histories: where its history goes.
        worker: how their names begin.
        place: the store.
        name: of the counter or generator.
        kind: what hands out the ids.
        batch: ids of one ``next_ids``; 0 for none.
        singles: ids by ``next_id`` between two batches; 0 for none.
        pause: seconds between two batches.
        tasks: how many tasks take ids.
        step: ids per segment.
        endurance: seconds that the ids in hand of a chain last; 0 has every fault meet its trips.
        ids: how many to take in all; 0 for no end.
        cancel: seconds within which a call is cancelled at random; 0 for never.
        fork_every: seconds between two forks; 0 for none.
        safe_guard: seconds that a machine id stays ours in silence.
        interval: seconds between two renewals.
        layout: of Snowflakes, as `SnowflakeLayout` takes it.
        wait_timeout: seconds that a call waits.
        margin: of sharded ids, seconds by which two masters' clocks differ.
        life: seconds after which a generator is closed and another one opened; 0 for never.
        offset: where a new counter begins.
        counter: in histories, what the ids are unique within.
        leased: whether histories have leases, which ids have to be within.
    """

    folder: Path
    histories: Path
    worker: str = ""
    place: Place
    namespace: str = NAMESPACE
    name: str = "ids"
    kind: Literal["chain", "segment", "strict", "snowflake", "sharded", "published"] = "chain"
    batch: int = 200
    singles: int = 200
    pause: float = 0.001
    tasks: int = 1
    step: int = 1000
    endurance: float = 0.0
    ids: int = 0
    cancel: float = 0.0
    fork_every: float = 0.0
    safe_guard: float = 1.5
    interval: float = 0.3
    layout: tuple[int, int, int] = (41, 10, 12)
    wait_timeout: float = 5.0
    margin: int = 0
    life: float = 0.0
    offset: int = 0
    counter: str = ""
    leased: bool = True

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(replace(self)), default=str)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Make it from its text."""
        facts: dict[str, Any] = json.loads(text)
        for key in ("folder", "histories"):
            facts[key] = Path(facts[key])
        return cls(place=Place(**facts.pop("place")), layout=tuple(facts.pop("layout")), **facts)

    @property
    def made_layout(self) -> SnowflakeLayout:
        """The layout of its Snowflakes: milliseconds since 2020."""
        timestamp_bits, machine_bits, sequence_bits = self.layout
        return SnowflakeLayout(timestamp_bits, machine_bits, sequence_bits, "ms", 1_577_836_800_000)

    @asynccontextmanager
    async def opened(
        self, instrument: Instrument
    ) -> AsyncGenerator[tuple[IdGenerator, MachineIdLease | None]]:
        """Open the generator, and the lease of its machine id if it has one."""
        if self.kind in {"sharded", "published"}:
            async with self._sharded(instrument) as generator:
                yield generator, None
            return
        async with self.place.opened(instrument) as store:
            if self.kind == "snowflake":
                lease = self._lease(store, instrument)
                made = SnowflakeId(
                    lease, name=self.name, layout=self.made_layout, wait_timeout=self.wait_timeout
                )
                async with lease, made:
                    yield made, lease
                return
            async with aiocosid.connect(
                store, namespace=self.namespace, instrument=instrument
            ) as provider:
                yield await self._counted(provider), None

    async def _counted(self, provider: aiocosid.IdProvider) -> IdGenerator:
        if self.kind == "strict":
            return await provider.segment(self.name, strict=True, wait_timeout=self.wait_timeout)
        options: CounterOptions = {
            "step": self.step,
            "offset": self.offset,
            "wait_timeout": self.wait_timeout,
        }
        if self.kind == "segment":
            return await provider.segment(self.name, **options)
        return await provider.segment_chain(self.name, endurance=self.endurance, **options)

    @asynccontextmanager
    async def _sharded(self, instrument: Instrument) -> AsyncGenerator[IdGenerator]:
        """Ids of a second, granted by a Redis that forgets: with our fence, or as published."""
        from aiocosid.stores._url import REDIS, read_url
        from aiocosid.stores.redis import RedisStore
        from aiocosid.stores.redis._link import make_clients

        if self.kind == "published":
            client, *others = make_clients(read_url(self.place.url, *REDIS))
            try:
                yield cast("IdGenerator", PublishedId(client, self.name))
            finally:
                for each in (client, *others):
                    with suppress(Exception):
                        await each.aclose()
            return
        async with RedisStore.from_url(self.place.url) as store:
            distributor = store.sequence_distributor(
                namespace=self.namespace, name=self.name, tolerance=1, margin=self.margin
            )
            async with ShardedId(
                distributor,
                layout=ShardedLayout(EPOCH_MS),
                wait_timeout=self.wait_timeout,
                instrument=instrument,
            ) as generator:
                yield generator

    def history(self, file: History, generator: str) -> RecordedGenerator:
        """Begin the history of a generator that is about to be opened."""
        layout = self.made_layout
        shifts = [layout._machine_shift, layout.machine_bits, layout._timestamp_shift]
        leased = self.leased and self.kind not in {"sharded", "published"}
        file.put(
            {
                "counter": self.counter,
                "generator": generator,
                "process": os.getpid(),
                "strict": self.kind == "strict",
                "leased": leased,
                "layout": [*shifts, layout.epoch_ms] if self.kind == "snowflake" else None,
            }
        )
        return RecordedGenerator(file, layout, leased=leased)

    def _lease(self, store: Store, instrument: Instrument) -> MachineIdLease:
        distributor = store.machine_id_distributor(
            namespace=self.namespace, safe_guard=self.safe_guard, interval=self.interval
        )
        timeout = max(0.25, self.interval)
        return MachineIdLease(
            distributor, bits=self.layout[1], call_timeout=timeout, instrument=instrument
        )
