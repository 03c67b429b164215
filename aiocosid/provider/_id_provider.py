"""Named generators, opened and closed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import anyio

from .._store_urls import open_store
from ..abc import DEFAULT_NAMESPACE, DEFAULT_STEP, SHARE, Store
from ..errors import BusyError
from ..segment import GroupedSegmentId, SegmentChainId, SegmentId
from ..segment._group import KINDS, Agreement
from ..segment._grouped import MAX_GROUPS
from ..segment._open_groups import OpenGroups
from ..segment._stock import Stock
from ._hosting import Hosting, component_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._provider_options import SegmentChainOptions, SegmentIdOptions, SnowflakeOptions
    from ..abc import AnyGenerator, Clock, InstanceId
    from ..events import Instrument
    from ..machine import MachineIdLease
    from ..segment import GroupBy
    from ..segment._generator import SegmentGenerator
    from ..segment._group import SegmentKind
    from ..snowflake import CosIdGenerator, CosIdText, SnowflakeId, SnowflakeLayout

__all__ = ("IdProvider", "connect")

_S = TypeVar("_S", bound="SegmentGenerator")
_G = TypeVar("_G", bound="AnyGenerator")


def connect(
    url: str | Store,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    instrument: Instrument | None = None,
    instance_id: InstanceId | str | None = None,
    close_timeout: float = 5.0,
    clock: Clock | None = None,
    create: bool = False,
) -> IdProvider:
    """Return a provider of generators on one store, to be opened by ``async with``.

    Args:
        url: as for `open_store`; or a store made from your own client, which stays open.
        namespace: the namespace of all its counters.
        instrument: receives the events of all its generators, and of a store made from a URL.
        instance_id: who asks for a machine id, when Snowflake ids are made; by default an instance
            that nobody else is.
        close_timeout: seconds that closing waits for calls under way, also of each generator.
        clock: time; the system's by default.
        create: whether opening creates missing tables and files.  What it has created itself is
            ready for machine ids; a store that was there needs ``aiocosid init`` once.

    Raises:
        InvalidArgumentError: the URL names no store, or is malformed.
        MissingExtraError: the store's driver is not installed.
    """
    return IdProvider(
        url if isinstance(url, Store) else open_store(url, instrument=instrument),
        namespace=namespace,
        instrument=instrument,
        instance_id=instance_id,
        close_timeout=close_timeout,
        clock=clock,
        create=create,
        owns_store=not isinstance(url, Store),
    )


class IdProvider(Hosting):
    """Named generators on one store; the same object for the same name.

    All of them run their tasks in the provider's one task group, so that an idle generator costs
    its counters and nothing else.
    """

    __slots__ = (
        "_creates",
        "_floors",
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
        create: bool = False,
        owns_store: bool = False,
    ) -> None:
        """Describe a provider; see `connect`."""
        self.namespace = namespace
        self._store = store
        self._owns_store = owns_store
        self._creates = create
        self._instrument = instrument
        self._instance_id = instance_id
        self._lease: MachineIdLease | None = None  # one for all Snowflake generators
        self._opening: dict[str, anyio.Event] = {}
        # Of generators that are gone, by their kind and name: how far they have come.
        self._floors: dict[tuple[type[Stock | OpenGroups], str], Any] = {}
        super().__init__(close_timeout=close_timeout, clock=clock)

    async def _start(self) -> None:
        await super()._start()
        if self._creates:
            await self._store.create_schema()

    def _reset(self) -> None:
        self._drop_generators()  # they are another loop's, or the parent process's
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

    async def grouped(
        self,
        name: str,
        *,
        group_by: GroupBy,
        step: int = DEFAULT_STEP,
        offset: int = 0,
        kind: SegmentKind = "chain",
        max_groups: int = MAX_GROUPS,
        **options: Unpack[SegmentChainOptions],
    ) -> GroupedSegmentId:
        """Return the open `GroupedSegmentId` of this name; it is made by the first call.

        A group whose counter went backwards is opened anew by its first call after this one.

        Args:
            name: the generator's name; its counters are called ``{name}@{group}``.
            group_by: ``GroupBy.day(zone="Europe/Berlin")``, or another.  With a function, each
                asker has to bring the same one, as a module's own: a lambda made anew is another.
            step: ids per segment.
            offset: where a new counter starts.
            kind: ``"chain"`` or ``"segment"``: what hands out the ids of one group.
            max_groups: groups held in memory at most, as for `GroupedSegmentId`.
            **options: as for that kind.

        Raises:
            BusyError: the name is in use as another kind of generator, with another step or group.
            CosIdError: as for `segment_chain`.
        """

        def make() -> GroupedSegmentId:
            made = GroupedSegmentId(
                self._store,
                namespace=self.namespace,
                name=name,
                group_by=group_by,
                offset=offset,
                step=step,
                kind=kind,
                max_groups=max_groups,
                clock=self._clock,
                **self._told(options),
            )
            made._resume(self._floors.get((OpenGroups, name)))
            return made

        # Of a kind that there is not, making it tells.
        detail = Agreement(step, KINDS[kind], group_by) if kind in KINDS else make()._detail
        found = await self._generator(GroupedSegmentId, name, detail, make)
        found._renew_fallen()
        return found

    async def snowflake(
        self,
        name: str = SHARE,
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
        from ..snowflake import COSID_MS, SnowflakeId  # who uses segments alone need not wait

        fields = layout or COSID_MS

        def make() -> SnowflakeId:
            lease, told = self._machine(fields.machine_bits), self._told(options)
            return SnowflakeId(lease, name=name, layout=fields, clock=self._clock, **told)

        return await self._generator(SnowflakeId, name, f"layout {fields!r}", make)

    async def cosid(
        self,
        name: str = "cosid",
        *,
        text: CosIdText | None = None,
        **options: Unpack[SnowflakeOptions],
    ) -> CosIdGenerator:
        """Return the open `CosIdGenerator` of this name; it is made by the first call.

        Its machine id has 20 bits, unless ``text`` says otherwise, and is the provider's one, so
        that Snowflake generators with other widths take a provider of another namespace.

        Args:
            name: the generator's name in the provider's namespace; by default CosId's own for it.
            text: how the ids are written; `RADIX62` if none is given.
            **options: as for `SnowflakeId`: ``broken_threshold``, ``wait_timeout`` ...

        Raises:
            BusyError: the name is in use as another kind of generator, or with another text.
            CosIdError: as for `snowflake`.
        """
        from ..snowflake import RADIX62, CosIdGenerator

        written = text or RADIX62

        def make() -> CosIdGenerator:
            lease, told = self._machine(written.layout.machine_bits), self._told(options)
            return CosIdGenerator(lease, name=name, text=written, clock=self._clock, **told)

        return await self._generator(CosIdGenerator, name, f"text {written!r}", make)

    def _machine(self, bits: int) -> MachineIdLease:
        from ..machine import MachineIdLease

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

    async def _segments(
        self, kind: type[_S], name: str, step: int, offset: int, options: Mapping[str, Any]
    ) -> _S:
        def make() -> _S:
            distributor = self._store.segment_distributor(
                namespace=self.namespace, name=name, offset=offset, step=step
            )
            made = kind(distributor, clock=self._clock, **self._told(options))
            made._resume(self._floors.get((Stock, name)))
            return made

        return await self._generator(kind, name, f"step {step}", make)

    def _told(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a generator's options; what it is not told itself is ours."""
        ours = {"instrument": self._instrument, "close_timeout": self._close_timeout}
        return {**ours, **options}

    async def _generator(
        self, kind: type[_G], name: str, detail: object, make: Callable[[], _G]
    ) -> _G:
        """Return the generator that is open under a name, or make and open it."""
        self._check_usable()
        while (opening := self._opening.get(name)) is not None:
            await opening.wait()  # another task is at it; it ends within its own deadline
            self._check_usable()
        found = self._generators.get(name)
        if found is None or component_of(found)._unusable is not None:
            return await self._opened(name, make)
        in_use = _detail_of(found)
        if type(found) is kind and in_use == detail:
            return found
        asked = str(detail)
        if asked == str(in_use):
            asked = "another function or zone of the same name"
        raise BusyError(
            repr(name),
            reason=f"is in use as {type(found).__name__} with {in_use}; "
            f"{kind.__name__} with {asked} needs another name",
        )

    async def _opened(self, name: str, make: Callable[[], _G]) -> _G:
        self._drop(name)
        made = make()
        opening = self._opening
        done = opening[name] = anyio.Event()
        # Among the others at once: a provider that closes now has to close this one too.
        self._generators[name] = made
        try:
            await component_of(made)._open(self._root)
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
        dropped: object = self._generators.pop(name, None)
        for kind in (Stock, OpenGroups):
            if isinstance(dropped, kind) and (reached := dropped._reached()):
                self._floors[kind, name] = reached

    def _label(self) -> str:
        return f"IdProvider {self.namespace}"

    def _leases(self) -> tuple[MachineIdLease, ...]:
        return () if self._lease is None else (self._lease,)

    def _drop_generators(self) -> None:
        for name in tuple(self._generators):
            self._drop(name)

    async def _release(self) -> None:
        if self._owns_store:
            await self._store.aclose()


def _detail_of(generator: Any) -> object:  # noqa: ANN401 - ours, of any kind
    """Return what two askers for one name have to agree on."""
    text = getattr(generator, "text", None)
    return f"text {text!r}" if text is not None else component_of(generator)._detail
