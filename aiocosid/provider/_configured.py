"""A provider whose generators are known from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from .._default import use_provider
from ..abc import SHARE
from ..errors import CosIdError
from ._hosting import Hosting, component_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager
    from os import PathLike

    from ..abc import AnyGenerator, Clock, Store
    from ..events import Instrument
    from ..machine import MachineIdLease
    from ..settings import Settings
    from ..sharding import Sharding

__all__ = ("ConfiguredProvider", "configure")


def configure(
    settings: Settings | Mapping[str, Any] | str | PathLike[str] | None = None,
    *,
    default: bool = True,
    instrument: Instrument | None = None,
    clock: Clock | None = None,
) -> ConfiguredProvider:
    """Return a provider of the generators that settings describe, to be opened by ``async with``.

    Everything is checked here, and nothing is sent.

    Args:
        settings: the path of a TOML file, a mapping of the same shape, `Settings`, or nothing: the
            file that ``AIOCOSID_CONFIG`` names, if any.  Variables as
            ``AIOCOSID_GENERATORS__ORDER__STEP`` come before what a file says.
        default: whether it is the process's default provider while it is open.
        instrument: receives the events of all its generators.
        clock: time; the system's by default.

    Raises:
        InvalidSettingsError: something is wrong; the error tells all of it, with places.
        MissingExtraError: the extra ``settings`` is not installed.
    """
    from ..settings._load import built

    found, _, made = built(settings, instrument=instrument, clock=clock)
    return ConfiguredProvider(
        {
            name: each.generator
            for name, each in made.generators.items()
            if each.generator is not None
        },
        leases=made.leases,
        stores=made.stores,
        sharding=made.shardings,
        default=default,
        close_timeout=found.close_timeout,
        clock=clock,
    )


class ConfiguredProvider(Hosting):
    """Generators that settings describe, opened together: ``ids["order"]``, ``ids.share``.

    Opening returns when all of them can hand out ids.  If one cannot be opened, none is, and its
    own error is raised with its name in front.  The generators stay the same objects, so that it
    may be opened again.

    Attributes:
        sharding: shardings by name.
    """

    __slots__ = ("_default", "_in_use", "_shared", "_stores", "sharding")

    def __init__(
        self,
        generators: Mapping[str, AnyGenerator],
        *,
        leases: Iterable[MachineIdLease] = (),
        stores: Iterable[Store] = (),
        sharding: Mapping[str, Sharding[Any]] | None = None,
        default: bool = True,
        close_timeout: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        """Describe a provider; see `configure`.

        Args:
            generators: by name; none of them is open.
            leases: that Snowflake generators among them share.
            stores: that are closed at the end.
            sharding: shardings by name.
            default: whether it is the process's default provider while it is open.
            close_timeout: seconds that closing may take.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: ``close_timeout`` is outside its range.
        """
        super().__init__(close_timeout=close_timeout, clock=clock)
        self._generators = dict(generators)
        self._shared = tuple(leases)
        self._stores = tuple(stores)
        self.sharding = dict(sharding or {})
        self._default = default
        self._in_use: AbstractContextManager[object] | None = None

    @property
    def share(self) -> AnyGenerator:
        """The default generator, ``__share__``; KeyError if there is none."""
        return self[SHARE]

    def _label(self) -> str:
        return "ConfiguredProvider"

    def _leases(self) -> tuple[MachineIdLease, ...]:
        return self._shared

    def _reset(self) -> None:
        self._end_use()  # of an earlier life, on a loop that has died

    async def _start(self) -> None:
        await super()._start()
        for lease in self._shared:
            lease._host = self._root
        refused: dict[str, CosIdError] = {}
        async with anyio.create_task_group() as group:
            for name in self._generators:
                group.start_soon(self._open_one, name, refused, group.cancel_scope)
        for name, error in refused.items():
            raise _named(error, name) from error.__cause__
        if self._default:
            self._in_use = use_provider(self)
            self._in_use.__enter__()

    async def _open_one(
        self, name: str, refused: dict[str, CosIdError], scope: anyio.CancelScope
    ) -> None:
        try:
            await component_of(self._generators[name])._open(self._root)
        except CosIdError as error:  # kept out of the group, which would wrap it
            refused[name] = error
            scope.cancel()

    def _stop(self, reason: CosIdError) -> None:
        self._end_use()
        super()._stop(reason)

    def _end_use(self) -> None:
        in_use, self._in_use = self._in_use, None
        if in_use is not None:
            in_use.__exit__(None, None, None)

    async def _release(self) -> None:
        errors: list[Exception] = []
        for store in self._stores:
            try:
                await store.aclose()
            except Exception as error:  # noqa: BLE001 - for whoever closes, after all the others
                errors.append(error)
        if errors:
            raise errors[0]


def _named(error: CosIdError, name: str) -> CosIdError:
    """Return the error with the generator's name in its sentence."""
    named = error.again()
    named.args = (f"generator {name!r} could not be opened: {error}",)
    return named
