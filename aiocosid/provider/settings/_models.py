"""The tables of settings: a class for each, an attribute for each key.  `_build` cross-checks."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Discriminator, Field, Tag

from ...abc import DEFAULT_NAMESPACE
from ...abc.leases import InstanceOptions, LeaseTerms
from ._generators import (  # noqa: TC001 - pydantic reads annotations
    GeneratorSettings,
    Name,
    Patience,
    Timeout,
)
from ._having import having
from ._server import ServerSettings
from ._sharding import ShardingSettings  # noqa: TC001 - pydantic reads annotations
from ._values import STRICT, Creation, Flag, Function, Seconds, StoreValue, Whole, declared

__all__ = ("LeafTagsSettings", "MachineSettings", "OwnStoreSettings", "Settings", "TieredSettings")


@having(LeaseTerms, "peer_safe_guard", "lead", "start_timeout", "on_lost")
@having(InstanceOptions, "region", "region_bits")
class MachineSettings(BaseModel):
    """The source of the machine ids of Snowflakes.

    Attributes:
        source: "store": a lease from the generator's store; "manual": a fixed number;
            "stateful-set": the ordinal of the pod.
        instance_id: the name of the holder of the machine id; by default a new name for each
            process.
        stable: whether a restarted process has the same instance id.
        interval: seconds between two renewals, by default 60, or 10 for a stable instance; without
            a store, seconds between two writes of the fence, by default 3.
        pod_name: the pod's name; by default the environment's POD_NAME, which the pod's template
            sets from ``metadata.name``.
        worker: the number of this worker among several, from 0.
        worker_bits: how many of the lowest bits hold the worker.
        state_dir: the directory of lock and fence, by default ``~/.cosid-machine-state``; for a
            stable instance on a store, a directory on the machine's own disk, which lets it restart
            at once after a crash.
        offline: seconds for which a process may issue ids, and may start on the same machine, while
            the store is down; needs ``state_dir``.
        offline_beside_cosid: allows ``offline`` where CosId's Java nodes hold machine ids; confirms
            that those nodes never take the id of a silent instance.
        on_lost: whether a lease that lost its id takes another one, or its generators end.
        broken_threshold: seconds to wait for a clock that is behind a stored time; inf for ever.
        safe_guard: by default 300.
    """

    model_config = STRICT

    source: Literal["store", "manual", "stateful-set"] = "store"
    instance_id: Name | None = None
    stable: Flag = False
    safe_guard: Annotated[Seconds, declared("safe_guard")] | None = None
    interval: Timeout | None = None
    machine_id: Annotated[Whole, declared("machine_id")] | None = None
    pod_name: Name | None = None
    worker: Annotated[Whole, Field(ge=0)] | None = None
    worker_bits: Annotated[Whole, Field(ge=0, le=30)] | None = None
    state_dir: Name | None = None
    offline: Timeout | None = None
    offline_beside_cosid: Flag = False
    broken_threshold: Patience = 2.0
    call_timeout: Annotated[Seconds, declared("call_timeout")] = 2.0


class TieredSettings(BaseModel):
    """A durable store under a fast one.

    Attributes:
        root: a URL, a name in ``stores`` or a store: the durable store, which grants spans of ids
            and machine ids; not Redis.
        cache: a URL, a name in ``stores`` or a store: Redis or Valkey, which grants ids within the
            spans.
        span: ids in a span; at least the step of each generator on this store.
        cache_timeout: seconds that a call to the cache may take before the root is called instead.
        pause: seconds without calls to the cache after it failed to answer.
        root_name: distinguishes roots on one Redis; by default taken from the root's URL.
    """

    model_config = STRICT

    root: StoreValue
    cache: StoreValue
    span: Annotated[Whole, Field(ge=1, le=2**40)] = 1_000_000
    cache_timeout: Timeout = 0.75
    pause: Patience = 1.0
    root_name: Name | None = None


class LeafTagsSettings(BaseModel):
    """A `LeafSegmentId` for each tag of Leaf's table, including tags that are added later.

    Attributes:
        store: a URL, a name in ``stores`` or a store: Leaf's store; by default the one at the top.
        interval: seconds between two readings of the table.
    """

    model_config = STRICT

    store: StoreValue | None = None
    interval: Timeout = 60.0


class OwnStoreSettings(BaseModel):
    """A store of your own.

    Attributes:
        make: the store's class, or a function that returns the store, as "package.module:name".
        options: the keyword arguments of that call.
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
        store: a URL, or a name in ``stores``; a mapping may also have a store object, which stays
            open.
        stores: a table of URLs, tiered stores or stores of your own, by name.
        create: what opening may create: true for tables and files that never existed, in stores
            that can tell this; a day such as "2026-12-31", until which other stores are prepared
            too; or "disposable" for tests.  ``aiocosid init --config FILE`` prepares each store
            once.
        close_timeout: seconds that closing may take.
        machine: where machine ids come from.
        share: the default generator, ``__share__``: ``ids.share``.
        generators: a table for each generator: ``ids["order"]`` is ``[generators.order]``.
        leaf_tags: the tags of Leaf's table, which may change at any time:
            ``ids.leaf_tags.next_id("order")``.
        sharding: a table for each sharding: ``ids.sharding["orders"]`` is ``[sharding.orders]``.
        server: the id service, which ``aiocosid serve`` runs.
    """

    model_config = STRICT

    namespace: Annotated[Name, declared("namespace")] = DEFAULT_NAMESPACE
    store: StoreValue | None = None
    stores: dict[str, StoreSettings] = Field(default_factory=dict)
    create: Creation = False
    close_timeout: Timeout = 5.0
    machine: MachineSettings = MachineSettings()
    share: GeneratorSettings | None = None
    generators: dict[str, GeneratorSettings] = Field(default_factory=dict)
    leaf_tags: LeafTagsSettings | None = None
    sharding: dict[str, ShardingSettings] = Field(default_factory=dict)
    server: ServerSettings = ServerSettings()
