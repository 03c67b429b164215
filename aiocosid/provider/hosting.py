"""Generators by name whose tasks run in one root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import anyio

from .._life.component import Component
from ..abc import IdGenerator, TextIdGenerator
from ..abc.checks import check_seconds
from ..errors import ClosedError, GeneratorMissingError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..abc import AnyGenerator, Clock
    from ..errors import CosIdError
    from ..machine import MachineIdLease

__all__ = ("Hosting", "OwnGenerator", "check_ids", "check_type", "component_of", "wrong_type")

_D = TypeVar("_D")


class Hosted(Component):
    """The part of a generator of ours that a provider opens and closes.

    Attributes:
        _has_to_drain: whether closing it has to wait for calls under way.
    """

    __slots__ = ()

    _has_to_drain: bool


def component_of(generator: Any) -> Hosted:  # noqa: ANN401 - ours, of any kind
    """Return the part of a generator that has a life: itself, or the generator that it wraps."""
    found = generator
    while not isinstance(found, Component):
        found = found.inner
    return cast("Hosted", found)


def check_type(of: object) -> None:
    """Raise unless ids can be of this type."""
    if of is not int and of is not str:
        raise InvalidArgumentError("type of ids", of, expected="int or str")


def check_ids(name: str, generator: AnyGenerator, of: type[int | str]) -> None:
    """Raise `InvalidArgumentError` unless the ids of a name are of this type."""
    check_type(of)
    kind: type = IdGenerator if of is int else TextIdGenerator
    if not isinstance(generator, kind):
        raise wrong_type(name, generator, of)


def wrong_type(name: str, found: object, of: type[int | str]) -> InvalidArgumentError:
    """Return the error for a caller who asks for ids of the type that the name does not have."""
    expected = f"a generator whose ids are {of.__name__}"
    return InvalidArgumentError(f"ids[{name!r}]", found, expected=expected)


class Hosting(Component):
    """Holds generators by name; retires, drains and closes them together."""

    __slots__ = ("_close_timeout", "_generators", "_own")

    def __init__(self, *, close_timeout: float, clock: Clock | None) -> None:
        check_seconds("close_timeout", close_timeout)
        self._close_timeout = close_timeout
        self._generators: dict[str, AnyGenerator] = {}
        self._own: dict[str, OwnGenerator] = {}  # of generators that callers have brought
        super().__init__(clock)

    @overload
    def __getitem__(self, name: str, /) -> AnyGenerator: ...

    @overload
    def __getitem__(self, name: tuple[str, type[int]], /) -> IdGenerator: ...

    @overload
    def __getitem__(self, name: tuple[str, type[str]], /) -> TextIdGenerator: ...

    def __getitem__(self, name: str | tuple[str, type[int | str]], /) -> AnyGenerator:
        """Return the generator of this name, also one that has ended.

        ``ids["order", int]`` is one whose ids are numbers, and ``ids["order", str]`` one whose ids
        are text, for a type checker too.

        Raises:
            GeneratorMissingError: there is none of that name; a KeyError, which names similar ones.
            InvalidArgumentError: its ids are of the other type.
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
        """Return the generator of this name, also one that has ended; else the default."""
        return self._generators.get(name, default)

    def __contains__(self, name: object) -> bool:
        """Tell whether there is a generator of this name, also one that has ended."""
        return name in self._generators

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the generators, those that have ended among them."""
        return iter(tuple(self._generators))

    def __len__(self) -> int:
        """Count the generators, those that have ended among them."""
        return len(self._generators)

    def statistics(self) -> dict[str, dict[str, object]]:
        """Return a tree ready for JSON, by name, as CosId's actuator shows it; never waits."""
        return {name: each.statistics().as_tree() for name, each in self._generators.items()}

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._close_timeout

    def fail_fast(self) -> None:
        """Let callers fail soon while the store is down, until the provider is closed.

        It sets ``fail_fast`` for all generators that leave it at None, also for those that are open
        already; the web integrations call it.

        Raises:
            ClosedError: the provider is not open, or another `CosIdError` that says why.
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

    def _part(self, name: str) -> Hosted:
        """Return the part of the generator of a name that has a life."""
        return self._own.get(name) or component_of(self._generators[name])

    def _parts(self) -> list[Hosted]:
        return [self._part(name) for name in self]

    def _stop(self, reason: CosIdError) -> None:
        for generator in self._hosted():
            error = type(reason)(generator._label()) if isinstance(reason, ClosedError) else reason
            if self._closing is not None:
                generator._root = None  # a caller who opens it now must not close it too, and wait
            generator._retire(error)

    def _hosted(self) -> list[Hosted]:
        """List the generators, without those that a caller has closed and opened again alone."""
        return [each for each in self._parts() if not each._owns_root]

    async def _drain(self) -> None:
        generators, errors = self._hosted(), list[Exception]()
        self._drop_generators()

        async def drain(generator: Hosted) -> None:
            try:
                await generator._drain()
            except Exception as error:  # noqa: BLE001 - raised when all are drained
                errors.append(error)

        # A generator's own close timeout may be longer than ours.
        with self._clock.move_on_after(self._close_timeout * 2):
            async with anyio.create_task_group() as group:
                for generator in generators:
                    generator._root = None
                    if generator._has_to_drain:  # a task each would be too many for the idle ones
                        group.start_soon(drain, generator)
        if errors:
            raise errors[0]

    def _drop_generators(self) -> None:
        """Forget the generators, if the next opening begins without any."""


class OwnGenerator(Hosted):
    """Opens and closes a generator of the user's own, of any class, with the provider.

    The generator keeps a root of its own: this class uses only what the contract has.
    """

    __slots__ = ("_close_timeout", "_generator", "_is_open")

    _has_to_drain = True

    def __init__(
        self, generator: AnyGenerator, *, close_timeout: float, clock: Clock | None
    ) -> None:
        if not isinstance(generator, IdGenerator | TextIdGenerator):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            expected = "an IdGenerator or a TextIdGenerator"  # type: ignore[unreachable]
            raise InvalidArgumentError("generator", generator, expected=expected)
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
        self._is_open = False  # by us, that is

    async def _start(self) -> None:
        await self._generator.__aenter__()
        if self._unusable is not None:  # the provider was closed meanwhile
            await self._generator.aclose()
            raise self._unusable.again()
        self._is_open = True

    def _stop(self, reason: CosIdError) -> None:
        del reason  # its own closing wakes those who wait

    async def _drain(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._generator.aclose()

    async def _release(self) -> None:
        """Do nothing: the generator closes its own connections."""
