"""What can be set: one class a table, one attribute a key.  No cross-checks; see `_build`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Discriminator, Field, Tag

from ..abc import DEFAULT_NAMESPACE
from ._generators import (  # noqa: TC001 - pydantic reads annotations
    GeneratorSettings,
    Name,
    Patience,
    Timeout,
)
from ._sharding import ShardingSettings  # noqa: TC001 - pydantic reads annotations
from ._values import STRICT, Flag, Function, Seconds, StoreValue, Whole

__all__ = ("MachineSettings", "OwnStoreSettings", "Settings", "TieredSettings")


class MachineSettings(BaseModel):
    """Where the machine ids of Snowflakes come from.

    Attributes:
        source: a lease of the generator's store, a number by hand, the pod's in a StatefulSet, or
            the low bits of the host's IPv4 or MAC address, which two hosts may have the same.
        instance_id: who asks; an instance that nobody else is without it.
        stable: whether the same instance comes back under that name.
        safe_guard: store: seconds without a sign of life after which an id may go to another; inf
            for never.
        interval: seconds between two signs of life, or writings of the mark.
        machine_id: manual: the number.
        address: ip and mac: the address, instead of the host's own.
        hostname: stateful-set: the pod's name, instead of the environment's HOSTNAME.
        worker: manual and stateful-set: which of several workers this is.
        worker_bits: manual and stateful-set: how many of the lowest bits hold the worker.
        state_dir: where lock and mark lie, if not in the store.
        on_lost: whether another id is taken after a loss, or the generators end.
        peer_safe_guard: seconds; the shortest safe guard of any instance of the namespace.
        lead: seconds that the time mark is ahead of the clock.
        broken_threshold: seconds that a clock behind a stored time is waited for; inf for ever.
        start_timeout: seconds that opening tries to reach the store.
        call_timeout: seconds after which a call to the store is given up.
    """

    model_config = STRICT

    source: Literal["store", "manual", "stateful-set", "ip", "mac"] = "store"
    instance_id: Name | None = None
    stable: Flag = False
    safe_guard: Annotated[Seconds, Field(gt=0)] | None = None
    interval: Timeout | None = None
    machine_id: Annotated[Whole, Field(ge=0, lt=2**31)] | None = None
    address: Name | None = None
    hostname: Name | None = None
    worker: Annotated[Whole, Field(ge=0)] | None = None
    worker_bits: Annotated[Whole, Field(ge=0, le=30)] | None = None
    state_dir: Name | None = None
    on_lost: Literal["redistribute", "raise"] = "redistribute"
    peer_safe_guard: Timeout | None = None
    lead: Timeout | None = None
    broken_threshold: Patience = 2.0
    start_timeout: Timeout = 5.0
    call_timeout: Timeout = 2.0


class TieredSettings(BaseModel):
    """A durable store beneath a fast one.

    Attributes:
        root: a URL, a name in ``stores`` or a store: the one that counts.
        cache: likewise: Redis, which hands out what the root has leased.
        span: ids leased at a time, at least the steps of the generators on it.
        cache_timeout: seconds after which the root is asked instead.
        pause: seconds for which the cache is not asked after it did not answer.
        root_name: tells roots apart on one Redis; by default taken from the root's URL.
    """

    model_config = STRICT

    root: StoreValue
    cache: StoreValue
    span: Annotated[Whole, Field(ge=1, le=2**40)] = 1_000_000
    cache_timeout: Timeout = 0.75
    pause: Patience = 1.0
    root_name: Name | None = None


class OwnStoreSettings(BaseModel):
    """A store of the user's.

    Attributes:
        make: its class, or a function that returns it, as "package.module:name".
        options: what it is called with.
    """

    model_config = STRICT

    make: Function
    options: dict[str, object] = Field(default_factory=dict, repr=False)  # perhaps with a password


def _store_kind(value: object) -> str:
    if isinstance(value, dict):
        return "own" if "make" in value else "tiered"
    if isinstance(value, OwnStoreSettings):
        return "own"
    return "tiered" if isinstance(value, TieredSettings) else "url"


StoreSettings: TypeAlias = Annotated[
    Annotated[StoreValue, Tag("url")]
    | Annotated[TieredSettings, Tag("tiered")]
    | Annotated[OwnStoreSettings, Tag("own")],
    Discriminator(_store_kind),
]


class Settings(BaseModel):
    """All settings of a provider; `configure` builds it.

    Attributes:
        namespace: of all counters and machine ids that have none of their own.
        store: a URL, a name in ``stores`` or a store: where they lie.  A store stays open.
        stores: by name URLs, stores, or tables of a tiered store or one of the user's.
        create: whether opening creates missing tables and files.
        close_timeout: seconds that closing may take.
        machine: where machine ids come from.
        share: the default generator, ``__share__``.
        generators: by name.
        sharding: by name.
    """

    model_config = STRICT

    namespace: Name = DEFAULT_NAMESPACE
    store: StoreValue | None = None
    stores: dict[str, StoreSettings] = Field(default_factory=dict)
    create: bool = False
    close_timeout: Timeout = 5.0
    machine: MachineSettings = MachineSettings()
    share: GeneratorSettings | None = None
    generators: dict[str, GeneratorSettings] = Field(default_factory=dict)
    sharding: dict[str, ShardingSettings] = Field(default_factory=dict)
