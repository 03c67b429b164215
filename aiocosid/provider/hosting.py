"""Generators by name, whose tasks run in one root."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from .._life.clock import SYSTEM_CLOCK
from .._life.component import Component, drain_all, label_of, leave_root, retire
from ..abc import IdGenerator, MachineIdDistributor, TextIdGenerator
from ..abc.checks import DISPOSABLE, check_seconds
from ..abc.leases import InstanceOptions, LeaseTerms, RestartOptions
from ..abc.options import declared
from ..errors import (
    ClosedError,
    GeneratorMissingError,
    InvalidArgumentError,
    UnsupportedByStoreError,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from .._life.loop import TaskRoot
    from ..abc import AnyGenerator, Clock, Store
    from ..abc.checks import Create
    from ..errors import CosIdError
    from ..generators import CounterId
    from ..machine import MachineIdLease

__all__ = (
    "Hosting",
    "OwnGenerator",
    "StoreHost",
    "check_ids",
    "check_type",
    "component_of",
    "create_in",
    "wrong_type",
)

_D = TypeVar("_D")

LEASE_TERMS: Final = declared(LeaseTerms).keys()
OF_STORE: Final = (*declared(InstanceOptions), *declared(RestartOptions))
"""The `MachineOptions` that apply only to the store's own machine ids."""


def component_of(generator: Any) -> Component:  # noqa: ANN401 - aiocosid's, of any kind
    """Return the part of a generator that can be opened: itself, or the generator that it wraps."""
    found = generator
    while not isinstance(found, Component):
        found = found._inner
    return found


def check_type(of: object) -> type[int | str]:
    """Return the type; raise unless ids can have it."""
    if of is int:
        return int
    if of is str:
        return str
    raise InvalidArgumentError("type of ids", of, "must be int or str")


def check_ids(name: str, generator: AnyGenerator, of: type[int | str]) -> None:
    """Raise `InvalidArgumentError` unless the ids of a name have this type."""
    check_type(of)
    kind: type = IdGenerator if of is int else TextIdGenerator
    if not isinstance(generator, kind):
        raise wrong_type(name, generator, of)


def wrong_type(name: str, found: object, of: type[int | str]) -> InvalidArgumentError:
    """Return the error for a request for ids of a type that the name does not have."""
    rule = f"must be a generator whose ids are {of.__name__}"
    return InvalidArgumentError(f"ids[{name!r}]", found, rule)


class Hosting(Component):
    """Holds generators by name; retires, drains and closes them together."""

    __slots__ = ("_close_timeout", "_generators", "_own")

    def __init__(self, *, close_timeout: float, clock: Clock | None) -> None:
        check_seconds("close_timeout", close_timeout)
        self._close_timeout = close_timeout
        self._generators: dict[str, AnyGenerator] = {}
        self._own: dict[str, OwnGenerator] = {}  # for generators of the caller's own classes
        super().__init__(clock)

    def __repr__(self) -> str:
        """Name it, and say whether it is open and how many generators it has."""
        return f"<{self._label()} {self._condition} generators={len(self._generators)}>"

    @overload
    def __getitem__(self, name: str, /) -> AnyGenerator: ...

    @overload
    def __getitem__(self, name: tuple[str, type[int]], /) -> IdGenerator: ...

    @overload
    def __getitem__(self, name: tuple[str, type[str]], /) -> TextIdGenerator: ...

    def __getitem__(self, name: str | tuple[str, type[int | str]], /) -> AnyGenerator:
        """Return the generator with this name, even if it has ended.

        ``ids["order", int]`` is a generator of numbers, and ``ids["order", str]`` a generator of
        texts, also for a type checker.

        Raises:
            GeneratorMissingError: there is no generator with that name.  It is a KeyError, and
                names similar ones.
            InvalidArgumentError: the generator's ids have the other type.
        """
        of: type[int | str] | None = None
        if not isinstance(name, str):
            name, of = name
        found = self._generators.get(name)
        if found is None:
            raise GeneratorMissingError(name, known=self._generators)
        if of is not None:
            check_ids(name, found, of)
        return found

    @overload
    def get(self, name: str, default: None = None, /) -> AnyGenerator | None: ...

    @overload
    def get(self, name: str, default: _D, /) -> AnyGenerator | _D: ...

    def get(self, name: str, default: object = None, /) -> object:
        """Return the generator with this name, even if it has ended; otherwise the default."""
        return self._generators.get(name, default)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a generator with this name, even if it has ended."""
        return name in self._generators

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the generators, including those that have ended."""
        return iter(tuple(self._generators))

    def __len__(self) -> int:
        """Count the generators, including those that have ended."""
        return len(self._generators)

    def statistics(self) -> dict[str, dict[str, object]]:
        """Return statistics by name for JSON, as CosId's actuator shows them; never waits."""
        return {name: each.statistics().as_tree() for name, each in self._generators.items()}

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._close_timeout

    def fail_fast(self) -> None:
        """Make calls fail soon while the store is down, until the provider is closed.

        It sets ``fail_fast`` for all generators that leave it at None, including those that are
        already open.  The web integrations call it.

        Raises:
            ClosedError: the provider is not open; another `CosIdError` if there is a more specific
                reason.
        """
        self._check_usable()
        if self._root is not None:
            self._root.fail_fast = True

    def _leases(self) -> tuple[MachineIdLease, ...]:
        """Return the leases that the generators share."""
        raise NotImplementedError

    async def _start(self) -> None:
        if self._root is not None:
            self._root.tenants = self._tenants

    def _tenants(self) -> tuple[Component, ...]:
        return (self, *self._parts(), *self._leases())

    def _part(self, name: str) -> Component:
        """Return the part of a named generator that can be opened."""
        return self._own.get(name) or component_of(self._generators[name])

    def _parts(self) -> list[Component]:
        return [self._part(name) for name in self]

    def _stop(self, reason: CosIdError) -> None:
        for generator in self._hosted():
            is_closed = isinstance(reason, ClosedError)
            if self._closing is not None:
                leave_root(generator)  # a caller that opens it now must not also close it and wait
            retire(generator, type(reason)(label_of(generator)) if is_closed else reason)

    def _hosted(self) -> list[Component]:
        """List the generators, except those that a caller closed and reopened separately."""
        return [each for each in self._parts() if not each._owns_root]

    async def _drain(self) -> None:
        generators = self._hosted()
        self._drop_generators()
        for generator in generators:
            leave_root(generator)
        # A generator's own close timeout may be longer than the provider's.
        with self._clock.move_on_after(self._close_timeout * 2):
            await drain_all(generators)

    def _drop_generators(self) -> None:
        """Forget the generators, if the next opening begins without any."""


class OwnGenerator(Component):
    """Opens and closes a user's own generator, of any class, with the provider.

    The generator keeps its own root, because this class uses only the methods of the contract.
    """

    __slots__ = ("_close_timeout", "_generator", "_is_open")

    def __init__(
        self, generator: AnyGenerator, *, close_timeout: float, clock: Clock | None
    ) -> None:
        if not isinstance(generator, IdGenerator | TextIdGenerator):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            rule = "must be an IdGenerator or a TextIdGenerator"  # type: ignore[unreachable]
            raise InvalidArgumentError("generator", generator, rule)
        self._generator = generator
        self._is_open = False
        self._close_timeout = close_timeout
        super().__init__(clock)

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take: the provider's."""
        return self._close_timeout

    def _label(self) -> str:
        return repr(self._generator)

    def _reset(self) -> None:
        self._is_open = False  # meaning opened by this object

    async def _start(self) -> None:
        await self._generator.__aenter__()
        if self._unusable is not None:  # the provider was closed meanwhile
            await self._generator.aclose()
            raise self._unusable.again()
        self._is_open = True

    def _stop(self, reason: CosIdError) -> None:
        del reason  # the generator's own closing wakes its waiters

    async def _drain(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._generator.aclose()

    async def _release(self) -> None:
        """Do nothing, because the generator closes its own connections."""


class StoreHost:
    """The parts from which specs create the generators of one store; nothing is sent.

    Attributes:
        store: the store.
        namespace: the namespace of all its counters.
        clock: the time source.
        root: the root in which the leases' tasks run.
        leases: the lease of the store's machine ids in each namespace.
        counters: the counters, which stay when their generators are closed.
        floors: where the successors of closed generators continue, by kind of state and name.
    """

    __slots__ = (
        *("_defaults", "_options"),
        *("clock", "counters", "floors", "leases", "namespace", "root", "store"),
    )

    def __init__(
        self,
        store: Store,
        namespace: str,
        options: Mapping[str, Any],
        defaults: Mapping[str, Any],
    ) -> None:
        """Describe the parts.

        Args:
            store: the store.
            namespace: the namespace of its counters.
            options: the `MachineOptions` that differ from their defaults.
            defaults: the defaults for a generator's options, including a clock.
        """
        if options.get("machine") is not None:
            _refuse(options, OF_STORE)
        self.store = store
        self.namespace = namespace
        self.clock: Clock = defaults["clock"]
        self.root: TaskRoot | None = None
        self.leases: dict[str, MachineIdLease] = {}
        self.counters: dict[str, CounterId] = {}
        self.floors: dict[tuple[str, str], Any] = {}
        self._options = options
        self._defaults = defaults

    def with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a generator's options, completed with the provider's."""
        return {**self._defaults, **options}

    def lease_for(self, bits: int, options: Mapping[str, Any]) -> MachineIdLease:
        """Return the lease of a generator's machine id.

        Args:
            bits: the width of the machine id.
            options: the generator's own options, which take precedence over the provider's.

        Raises:
            InvalidArgumentError: the machine id is leased with different options, or an option
                cannot be combined with the given ``machine``.
        """
        from ..machine import MachineIdLease, lease_of

        machine: object = options.get("machine", self._options.get("machine"))
        if machine is None:
            lease = self._shared_lease(self.namespace, bits, options)
        else:
            _refuse(options, OF_STORE)
            if isinstance(machine, MachineIdLease):
                _refuse(options, LEASE_TERMS)
                return machine
            if not isinstance(machine, MachineIdDistributor):
                rule = "must be a MachineIdDistributor or a MachineIdLease"
                raise InvalidArgumentError("machine", machine, rule)
            lease = lease_of(machine, bits=bits, **self._terms(options))
        _check_terms(lease, options)
        return lease

    def lane_lease(self, bits: int) -> MachineIdLease:
        """Return the lease of a lane's number, which is a machine id in a separate namespace."""
        return self._shared_lease(f"{self.namespace}.lane", bits, {})

    def _shared_lease(
        self, namespace: str, bits: int, options: Mapping[str, Any]
    ) -> MachineIdLease:
        """Return the lease of the store's machine ids in a namespace."""
        from ..machine import MachineIdLease

        lease = self.leases.get(namespace)
        if lease is None or lease._is_left_by(bits):
            distributor = self.store.machine_id_distributor(
                namespace=namespace, **self._chosen(options, OF_STORE)
            )
            lease = self.leases[namespace] = MachineIdLease(
                distributor, bits=bits, **self._terms(options)
            )
        lease._host = self.root
        return lease

    def _terms(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._defaults, **self._chosen(options, LEASE_TERMS)}

    def _chosen(self, options: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Return the options with these names, with a generator's before the provider's."""
        both = {**self._options, **options}
        return {name: both[name] for name in names if name in both}


def _check_terms(lease: MachineIdLease, options: Mapping[str, Any]) -> None:
    """Raise `InvalidArgumentError` if a lease has other terms than a generator requests."""
    from pathlib import Path

    from ..machine.instance_ids import as_instance_id

    for name, value in options.items():
        if name == "machine" or value is None:
            continue
        as_kept: dict[str, Any] = {"instance_id": as_instance_id, "state_dir": Path}
        wanted = as_kept[name](value) if name in as_kept else value
        found = getattr(lease._options if name in LEASE_TERMS else lease.distributor, name, None)
        if wanted != found:
            rule = f"must be {found!r}: the machine id of {lease.namespace!r} is leased with it"
            raise InvalidArgumentError(name, value, rule)


def _refuse(options: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise if options for the store's machine ids are given together with ``machine``."""
    for name in names:
        if name in options:
            rule = "cannot be combined with machine, which has its own"
            raise InvalidArgumentError(name, options[name], rule)


_NO_MEMORY: Final = (
    "cannot be used on a store that cannot tell new from emptied; run 'aiocosid init --store URL' "
    "once, or give the last day on which opening may create tables and the marker, such as "
    "'2026-12-31', or 'disposable' for tests"
)


def _today() -> date:
    return datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC).date()


async def create_in(store: Store, create: Create) -> None:
    """Create what never existed in a store, as far as ``create`` allows it.

    Raises:
        InvalidArgumentError: ``create`` is True, and the store cannot tell new from emptied.
        SchemaDroppedError: something that existed is missing.
        StoreNotEmptyError: the store has counters or machine ids, but no marker.
        StoreError: the store refuses or cannot be reached.
    """
    if create is False:
        return
    from ..abc.stores import is_disposable

    if create is True and not (store.has_witness or is_disposable()):
        raise InvalidArgumentError("create", create, _NO_MEMORY)
    if create not in {True, DISPOSABLE} and _today() > date.fromisoformat(str(create)):
        return
    await store.aopen()  # it may belong to the parent process
    await store.create_schema(disposable=create == DISPOSABLE)
    if not (store.has_witness or create == DISPOSABLE):
        try:
            await store.initialize()
        except UnsupportedByStoreError:
            return  # the store keeps no marker
