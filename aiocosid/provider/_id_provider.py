"""Named generators, opened and closed together."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import anyio

from ._component import Component
from ._provider_options import SegmentChainOptions as SegmentChainOptions
from ._provider_options import SegmentIdOptions as SegmentIdOptions
from ._provider_options import SnowflakeOptions as SnowflakeOptions
from .abc import DEFAULT_NAMESPACE, DEFAULT_STEP, Store
from .abc._ids import check_seconds
from .errors import BusyError, ClosedError, CosIdError, InvalidArgumentError
from .segment import SegmentChainId, SegmentId
from .segment._stock import Stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .abc import Clock, InstanceId
    from .events import Instrument
    from .machine import MachineIdLease
    from .segment._generator import SegmentGenerator
    from .snowflake import SnowflakeId, SnowflakeLayout

__all__ = (
    "IdProvider",
    "SegmentChainOptions",
    "SegmentIdOptions",
    "SnowflakeOptions",
    "connect",
    "open_store",
)

_STORES: Final = {
    "memory": ("memory", "MemoryStore"),
    "sqlite": ("sqlite", "SqliteStore"),
    **dict.fromkeys(
        (
            "redis",
            "rediss",
            "valkey",
            "valkeys",
            "unix",
            "redis+cluster",
            "rediss+cluster",
            "redis+sentinel",
            "rediss+sentinel",
        ),
        ("redis", "RedisStore"),
    ),
    **dict.fromkeys(("postgres", "postgresql"), ("postgres", "PostgresStore")),
}

_S = TypeVar("_S", bound="SegmentGenerator")
_G = TypeVar("_G", bound="SegmentGenerator | SnowflakeId")


def open_store(url: str) -> Store:
    """Return the store that a URL names; its module is imported here, and nothing is sent yet.

    Args:
        url: ``memory://``, ``sqlite:///ids.db``, ``redis://host:6379/0`` (``rediss://`` for TLS,
            ``unix:///path``, ``redis+cluster://a,b,c``, ``redis+sentinel://a,b,c/service/0``), or
            ``postgresql://user@host/db``.

    Raises:
        InvalidArgumentError: the URL names no store, or is malformed.
        MissingExtraError: the store's driver is not installed.
    """
    scheme = str(url).partition(":")[0].lower()
    if scheme not in _STORES:
        # Only the scheme: the rest may hold a password.
        known = ", ".join(f"{name}:" for name in sorted(_STORES))
        raise InvalidArgumentError("url", f"{scheme}:...", expected=f"one that begins with {known}")
    module, name = _STORES[scheme]
    store: type[Any] = getattr(import_module(f"{__package__}.stores.{module}"), name)
    made: Store = store.from_url(url)
    return made


def connect(
    url: str | Store,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    instrument: Instrument | None = None,
    instance_id: InstanceId | str | None = None,
    close_timeout: float = 5.0,
    clock: Clock | None = None,
) -> IdProvider:
    """Return a provider of generators on one store, to be opened by ``async with``.

    Args:
        url: as for `open_store`; or a store made from your own client, which stays open.
        namespace: the namespace of all its counters.
        instrument: receives the events of all its generators.
        instance_id: who asks for a machine id, when Snowflake ids are made; by default an instance
            that nobody else is.
        close_timeout: seconds that closing waits for calls under way, also of each generator.
        clock: time; the system's by default.

    Raises:
        InvalidArgumentError: the URL names no store, or is malformed.
        MissingExtraError: the store's driver is not installed.
    """
    return IdProvider(
        url if isinstance(url, Store) else open_store(url),
        namespace=namespace,
        instrument=instrument,
        instance_id=instance_id,
        close_timeout=close_timeout,
        clock=clock,
        owns_store=not isinstance(url, Store),
    )


class IdProvider(Component):
    """Named generators on one store; the same object for the same name.

    All of them run their tasks in the provider's one task group, so that an idle generator costs
    its counters and nothing else.
    """

    __slots__ = (
        "_asked",
        "_close_timeout",
        "_floors",
        "_generators",
        "_instance_id",
        "_instrument",
        "_lease",
        "_opening",
        "_owns_store",
        "_store",
        "namespace",
    )

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instrument: Instrument | None = None,
        instance_id: InstanceId | str | None = None,
        close_timeout: float = 5.0,
        clock: Clock | None = None,
        owns_store: bool = False,
    ) -> None:
        """Describe a provider; see `connect`."""
        check_seconds("close_timeout", close_timeout)
        self.namespace = namespace
        self._close_timeout = close_timeout
        self._store = store
        self._owns_store = owns_store
        self._instrument = instrument
        self._instance_id = instance_id
        self._lease: MachineIdLease | None = None  # one for all Snowflake generators
        self._generators: dict[str, SegmentGenerator | SnowflakeId] = {}
        self._opening: dict[str, anyio.Event] = {}
        self._floors: dict[str, int] = {}  # of generators that are gone, by name
        super().__init__(clock)

    def _reset(self) -> None:
        # They are another loop's, or the parent process's.
        for name in tuple(self._generators):
            self._drop(name)
        self._opening = {}

    async def segment_chain(
        self,
        name: str,
        *,
        step: int = DEFAULT_STEP,
        offset: int = 0,
        **options: Unpack[SegmentChainOptions],
    ) -> SegmentChainId:
        """Return the open `SegmentChainId` of this name; it is made by the first call.

        The settings are those of that call; of a later one only ``step`` is looked at.  A cancelled
        call makes no generator; its first segment may have been reserved, and is a gap then.

        Args:
            name: the counter's name in the provider's namespace.
            step: ids per segment.
            offset: where a new counter starts.
            **options: as for `SegmentChainId`: ``safe_distance``, ``ttl``, ``wait_timeout`` ...

        Raises:
            BusyError: the name is in use as another kind of generator, or with another step.
            InvalidArgumentError: an argument is outside its range.
            StoreError: the store refuses.
            SegmentUnavailableError: no first segment came within ``wait_timeout``.
            ClosedError: the provider is closed.
        """
        return await self._segments(SegmentChainId, name, step, offset, options)

    async def segment(
        self,
        name: str,
        *,
        step: int = DEFAULT_STEP,
        offset: int = 0,
        **options: Unpack[SegmentIdOptions],
    ) -> SegmentId:
        """Return the open `SegmentId` of this name; it is made by the first call.

        Args:
            name: the counter's name in the provider's namespace.
            step: ids per segment.
            offset: where a new counter starts.
            **options: as for `SegmentId`: ``ttl``, ``wait_timeout`` ...

        Raises:
            CosIdError: as for `segment_chain`.
        """
        return await self._segments(SegmentId, name, step, offset, options)

    async def snowflake(
        self,
        name: str = "__share__",
        *,
        layout: SnowflakeLayout | None = None,
        **options: Unpack[SnowflakeOptions],
    ) -> SnowflakeId:
        """Return the open `SnowflakeId` of this name; it is made by the first call.

        Its machine id is leased from the provider's store, one for all Snowflake generators of the
        provider, so that all their layouts have the same number of machine bits.

        Args:
            name: the generator's name in the provider's namespace.
            layout: how the ids are put together; CosId's default of 41, 10 and 12 bits, in
                milliseconds, if none is given.
            **options: as for `SnowflakeId`: ``broken_threshold``, ``wait_timeout`` ...

        Raises:
            BusyError: the name is in use as another kind of generator, or with another layout.
            InvalidArgumentError: an argument is outside its range, or another width of machine ids
                is in use.
            MachineBitsMismatchError: other processes use another width in this namespace.
            MachineIdOverflowError: all machine ids are held.
            MachineIdUnavailableError: the store could not be reached.
            LayoutExpiredError: the layout has ended.
            ClosedError: the provider is closed.
        """
        from .snowflake import COSID_MS, SnowflakeId  # who uses segments alone need not wait

        fields = layout or COSID_MS

        def make() -> SnowflakeId:
            lease, told = self._machine(fields.machine_bits), self._told(options)
            return SnowflakeId(lease, name=name, layout=fields, clock=self._clock, **told)

        return await self._generator(SnowflakeId, name, f"layout {fields!r}", make)

    def _machine(self, bits: int) -> MachineIdLease:
        from .machine import MachineIdLease

        if self._lease is None or self._lease._is_left_by(bits):
            distributor = self._store.machine_id_distributor(
                namespace=self.namespace, instance_id=self._instance_id
            )
            self._lease = MachineIdLease(
                distributor,
                bits=bits,
                close_timeout=self._close_timeout,
                instrument=self._instrument,
                clock=self._clock,
            )
        self._lease._host = self._root
        return self._lease

    def __getitem__(self, name: str) -> SegmentGenerator | SnowflakeId:
        """Return the generator of this name, also one that has ended; KeyError if there is none."""
        return self._generators[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the generators, those that have ended among them."""
        return iter(tuple(self._generators))

    def __len__(self) -> int:
        """Count the generators, those that have ended among them."""
        return len(self._generators)

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Return a tree ready for JSON, by name, as CosId's actuator shows it; never waits."""
        return {name: each.statistics().as_tree() for name, each in self._generators.items()}

    async def _segments(
        self, kind: type[_S], name: str, step: int, offset: int, options: Mapping[str, Any]
    ) -> _S:
        def make() -> _S:
            distributor = self._store.segment_distributor(
                namespace=self.namespace, name=name, offset=offset, step=step
            )
            made = kind(distributor, clock=self._clock, **self._told(options))
            made._floor = self._floors.get(name)
            return made

        return await self._generator(kind, name, f"step {step}", make)

    def _told(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a generator's options; what it is not told itself is ours."""
        ours = {"instrument": self._instrument, "close_timeout": self._close_timeout}
        return {**ours, **options}

    async def _generator(
        self, kind: type[_G], name: str, detail: str, make: Callable[[], _G]
    ) -> _G:
        """Return the generator that is open under a name, or make and open it."""
        self._check_usable()
        while (opening := self._opening.get(name)) is not None:
            await opening.wait()  # another task is at it; it ends within its own deadline
            self._check_usable()
        found = self._generators.get(name)
        if found is None or found._unusable is not None:
            return await self._opened(name, make)
        if type(found) is kind and found._detail == detail:
            return found
        raise BusyError(
            repr(name),
            reason=f"is in use as {type(found).__name__} with {found._detail}; "
            f"{kind.__name__} with {detail} needs another name",
        )

    async def _opened(self, name: str, make: Callable[[], _G]) -> _G:
        self._drop(name)
        made = make()
        opening = self._opening
        done = opening[name] = anyio.Event()
        # Among the others at once: a provider that closes now has to close this one too.
        self._generators[name] = made
        try:
            await made._open(self._root)
        except BaseException:
            # While we close, its call is still to be waited for.
            if self._generators.get(name) is made and self._closing is None:
                self._drop(name)
            raise
        else:
            return made
        finally:
            del opening[name]
            done.set()

    def _drop(self, name: str) -> None:
        """Forget a generator, but not how far it has come: its successor must not go below."""
        dropped = self._generators.pop(name, None)
        if isinstance(dropped, Stock) and dropped._floor is not None:
            self._floors[name] = dropped._floor

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._close_timeout

    def _label(self) -> str:
        return f"IdProvider {self.namespace}"

    async def _start(self) -> None:
        if self._root is not None:
            self._root.tenants = self._tenants

    def _tenants(self) -> tuple[Component, ...]:
        lease = () if self._lease is None else (self._lease,)
        return (self, *self._generators.values(), *lease)

    def _stop(self, reason: CosIdError) -> None:
        for generator in self._hosted():
            made = type(reason)(generator._label()) if isinstance(reason, ClosedError) else reason
            if self._closing is not None:
                generator._root = None  # else whoever opens it now would close it too, and wait
            generator._retire(made)

    def _hosted(self) -> list[SegmentGenerator | SnowflakeId]:
        """List the generators but for those that were closed, and opened anew on their own."""
        return [each for each in self._generators.values() if not each._owns_root]

    async def _drain(self) -> None:
        generators = self._hosted()
        for name in tuple(self._generators):
            self._drop(name)
        # A generator's own close timeout may be longer than ours.
        with self._clock.move_on_after(self._close_timeout * 2):
            async with anyio.create_task_group() as group:
                for generator in generators:
                    generator._root = None
                    if generator._has_to_drain:  # a task each would be too many for the idle ones
                        group.start_soon(generator._drain)

    async def _release(self) -> None:
        if self._owns_store:
            await self._store.aclose()
