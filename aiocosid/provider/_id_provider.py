"""Named generators, opened and closed together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from .._life.clock import SYSTEM_CLOCK
from .._life.component import open_in, why_unusable
from ..abc.checks import check_create
from ..abc.options import common, takes
from ..errors import CosIdError, GeneratorMissingError
from ..segment.generator import reached
from . import kinds
from .default import generator_named
from .hosting import Hosting, OwnGenerator, StoreHost, create_in
from .options import ConnectOptions, MachineOptions, ProviderOptions
from .specs import named, own, plain, shared, text

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ..abc import AnyGenerator, Store
    from ..machine import MachineIdLease
    from ..segment import GroupedSegmentId
    from ..segment.generator import SegmentGenerator
    from .specs import GeneratorSpec

__all__ = ("IdProvider", "connect")

_G = TypeVar("_G", bound="AnyGenerator")


@takes(ConnectOptions)
def connect(url: str | Store, options: ConnectOptions, /) -> IdProvider:
    """Return a provider of generators on one store, to be opened with ``async with``.

    Args:
        url: a URL as for `store_from_url`, or a store on your own client, which stays open.
        options: the keyword arguments of `ConnectOptions`.

    Raises:
        InvalidArgumentError: the URL names no store or is malformed, or an option for the store's
            machine ids is given together with ``machine``.
        MissingExtraError: the store's driver is not installed.
    """
    from ..abc import Store
    from .store_urls import store_from_url

    store = url if isinstance(url, Store) else store_from_url(url, instrument=options.instrument)
    return IdProvider(store, owns_store=store is not url, **common(options, ProviderOptions))


class IdProvider(Hosting):
    """Named generators on one store; the same name gives the same object.

    Await the method of a kind; it returns the generator once that is open.  All generators run
    their tasks in the provider's single task group, so an idle generator costs only its counters.

    Attributes:
        namespace: the namespace of all its counters.
        store: the store of its counters and machine ids.
    """

    __slots__ = (
        "_being_opened",
        "_creates",
        "_host",
        "_owns_store",
        "_specs",
        "namespace",
        "store",
    )

    @takes(ProviderOptions)
    def __init__(self, store: Store, options: ProviderOptions, /) -> None:
        """Describe a provider.

        Args:
            store: the store of its counters and machine ids.
            options: the keyword arguments of `ProviderOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range, or an option for the store's
                machine ids is given together with ``machine``.
        """
        self.namespace: str = options.namespace
        self.store: Store = store
        self._owns_store = options.owns_store
        self._creates = check_create(options.create)
        clock = options.clock or SYSTEM_CLOCK
        defaults = {
            "instrument": options.instrument,
            "close_timeout": options.close_timeout,
            "clock": clock,
        }
        self._host = StoreHost(store, self.namespace, common(options, MachineOptions), defaults)
        self._specs: dict[str, GeneratorSpec[Any]] = {}
        self._being_opened: dict[str, anyio.Event] = {}
        super().__init__(close_timeout=options.close_timeout, clock=options.clock)

    segment_chain = named(kinds.segment_chain)
    segment = named(kinds.segment)
    leaf_segment = named(kinds.leaf_segment)
    grouped = named(kinds.grouped)
    int32 = named(kinds.int32)
    uncertainty = named(kinds.uncertainty)
    snowflake = shared(kinds.snowflake)
    cached_snowflake = shared(kinds.cached_snowflake)
    cosid_text = text(kinds.cosid_text)
    sharded = named(kinds.sharded)
    remote = named(kinds.remote)
    uuid4 = plain(kinds.uuid4)
    uuid7 = plain(kinds.uuid7)
    counter = plain(kinds.counter)

    async def _start(self) -> None:
        await super()._start()
        await create_in(self.store, self._creates)

    def _reset(self) -> None:
        self._drop_generators()  # they belong to another loop or to the parent process
        self._being_opened = {}

    def _ask(self, name: str, spec: GeneratorSpec[_G]) -> Coroutine[object, object, _G]:
        return self._named(name, spec)

    async def add(self, name: str, generator: _G) -> _G:
        """Open a generator of your own under a name; return it once it can issue ids.

        The provider closes it, or `remove` does and frees the name.  Adding the same generator
        again has no effect.  A cancelled call adds nothing, and closes the generator if it was
        open.

        Args:
            name: its name in the provider, for ``ids[name]``; the generator's own name may differ.
            generator: a generator that is not open, of any class that implements
                `aiocosid.abc.IdGenerator` or `TextIdGenerator`.

        Raises:
            BusyError: the name is in use, or the generator is already open.
            InvalidArgumentError: ``generator`` is not a generator.
            CosIdError: as for opening the generator.
            ClosedError: the provider is closed.
        """
        return await self._named(name, own(generator, lambda: generator))

    async def remove(self, name: str) -> None:
        """Close the generator with this name, of whatever kind, and free the name.

        The next call for the name creates a new generator, whose ids are above all earlier ones.  A
        cancelled call still closes the generator.

        Args:
            name: the generator's name.

        Raises:
            GeneratorMissingError: there is no generator with that name.
            ClosedError: the provider is closed.
        """
        await self._settled(name)
        found = generator_named(name, self)
        try:
            await self._part(name).aclose()
        finally:
            if self._generators.get(name) is found and self._closing is None:
                self._drop(name)

    async def clear(self) -> None:
        """Close all generators and free their names, like CosId's ``IdGeneratorProvider.clear``.

        Running calls raise `ClosedError`.  The next call for a name creates a new generator, whose
        ids are above all earlier ones.  Leased machine ids are kept.  Without generators it has no
        effect.  A cancelled call may leave some of them open.

        Raises:
            ClosedError: the provider is closed.
            CosIdError: closing a generator fails; the others are still closed.
        """
        self._check_usable()
        errors: list[CosIdError] = []

        async def remove(name: str) -> None:
            try:
                await self.remove(name)
            except GeneratorMissingError:
                pass  # another caller removed it
            except CosIdError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            for name in self:
                tasks.start_soon(remove, name)
        if errors:
            raise errors[0]

    # Generators by name.

    async def _settled(self, name: str) -> None:
        """Wait until no other task is opening the generator with this name."""
        self._check_usable()
        while (opening := self._being_opened.get(name)) is not None:
            await opening.wait()  # it ends within its own deadline
            self._check_usable()

    async def _named(self, name: str, spec: GeneratorSpec[_G]) -> _G:
        """Return the open generator with this name, or create and open it."""
        await self._settled(name)
        found = self._generators.get(name)
        if found is None or why_unusable(self._part(name)) is not None:
            return await self._opened(name, spec)
        self._specs[name].check_agrees(name, spec)
        if spec.resumes == "groups":
            from ..segment.grouped_id import renew_fallen

            renew_fallen(cast("GroupedSegmentId", self._part(name)))
        return cast("_G", found)

    async def _opened(self, name: str, spec: GeneratorSpec[_G]) -> _G:
        self._drop(name)
        self._host.root = self._root
        generator = spec.make(self._host, name)
        if spec.is_own:
            timeout = self._close_timeout
            self._own[name] = OwnGenerator(generator, close_timeout=timeout, clock=self._clock)
        opening = self._being_opened
        done = opening[name] = anyio.Event()
        # It is added before it is open, because a provider that closes meanwhile must close it too.
        self._generators[name], self._specs[name] = generator, spec.without_make()
        try:
            await open_in(self._part(name), self._root)
        except BaseException:
            # While the provider closes, it must still wait for this generator.
            if self._generators.get(name) is generator and self._closing is None:
                self._drop(name)
            raise
        else:
            return generator
        finally:
            del opening[name]
            done.set()

    def _drop(self, name: str) -> None:
        """Forget a generator, but remember where its successor must continue."""
        if name not in self._generators:
            return
        part, resumes = self._part(name), self._specs[name].resumes
        del self._generators[name], self._specs[name]
        self._own.pop(name, None)
        if resumes and (floor := reached(cast("SegmentGenerator | GroupedSegmentId", part))):
            self._host.floors[resumes, name] = floor

    def _label(self) -> str:
        return f"IdProvider {self.namespace}"

    def _leases(self) -> tuple[MachineIdLease, ...]:
        return tuple(self._host.leases.values())

    def _drop_generators(self) -> None:
        for name in tuple(self._generators):
            self._drop(name)

    async def _release(self) -> None:
        if self._owns_store:
            await self.store.aclose()
