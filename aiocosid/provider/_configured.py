"""A provider whose generators are known from the start."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from .._life.component import open_in, release
from ..abc import SHARE
from ..abc.checks import check_create
from ..errors import (
    ClosedError,
    CosIdError,
    InvalidArgumentError,
    MachineIdQuarantineError,
    MachineIdUnavailableError,
)
from .default import use_provider
from .hosting import Hosting, component_of, create_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from os import PathLike

    from .._life.loop import TaskRoot
    from ..abc import AnyGenerator, Clock, Store
    from ..abc.checks import Create
    from ..abc.events import Instrument
    from ..compat.leaf import LeafTags
    from ..machine import MachineIdLease
    from ..segment import LeafSegmentId
    from ..sharding import Sharding
    from .settings import Settings

__all__ = ("ConfiguredProvider", "configure")

logger = logging.getLogger("aiocosid")

_PAUSE: Final = 1.0  # seconds between two attempts to open a generator


def configure(
    settings: Settings | Mapping[str, object] | str | PathLike[str] | None = None,
    *,
    default: bool = True,
    instrument: Instrument | None = None,
    clock: Clock | None = None,
) -> ConfiguredProvider:
    """Return a provider of the generators that settings describe, to be opened with ``async with``.

    It checks everything, but sends nothing.

    Args:
        settings: the path of a TOML file, a mapping of the same shape, `Settings`, or None for the
            file that ``AIOCOSID_CONFIG`` names, if any.  Variables such as
            ``AIOCOSID_GENERATORS__ORDER__STEP`` override the file.  In a mapping a ``store`` may be
            a `Store` itself, which stays open.
        default: whether this is the process's default provider while it is open.
        instrument: receives the events of all its generators.
        clock: the time source; the system's clock by default.

    Raises:
        InvalidSettingsError: a setting is wrong; the error lists every problem with its key.
        MissingExtraError: the extra ``settings`` is not installed.
    """
    from .settings._load import built

    found, _, parts = built(settings, instrument=instrument, clock=clock)
    return ConfiguredProvider(
        {
            name: each.generator
            for name, each in parts.generators.items()
            if each.generator is not None
        },
        leases=parts.leases,
        stores=parts.stores,
        borrowed=parts.borrowed,
        store=parts.store,
        sharding=parts.shardings,
        leaf_tags=parts.leaf_tags,
        default=default,
        create=found.create,
        close_timeout=found.close_timeout,
        clock=clock,
    )


class ConfiguredProvider(Hosting):
    """Generators that settings describe, opened together: ``ids["order"]``, ``ids.share``.

    Opening returns once all generators can issue ids.  If one cannot be opened, opening closes the
    others and raises that generator's error, which names it.  Closing closes the generators, then
    the stores that were opened from URLs.  The provider can be reopened, with the same generators.

    Attributes:
        sharding: shardings by name.
        leaf_tags: the tags of Leaf's table, open while the provider is; None if there are none in
            the settings.
        store: the ``store`` at the top of the settings; None if there is none.
    """

    __slots__ = (
        *("_borrowed", "_creates", "_default", "_in_part", "_in_use", "_shared", "_stores"),
        *("leaf_tags", "sharding", "store"),
    )

    def __init__(
        self,
        generators: Mapping[str, AnyGenerator],
        *,
        leases: Iterable[MachineIdLease] = (),
        stores: Iterable[Store] = (),
        borrowed: Iterable[Store] = (),
        store: Store | None = None,
        sharding: Mapping[str, Sharding[Any]] | None = None,
        leaf_tags: LeafTags[LeafSegmentId] | None = None,
        default: bool = True,
        create: Create = False,
        close_timeout: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        """Describe a provider; see `configure`.

        Args:
            generators: the generators by name; none of them may be open.
            leases: the leases of machine ids that Snowflake generators among them share.
            stores: the stores that this provider closes.
            borrowed: the stores that it leaves open.
            store: the store at the top of the settings.
            sharding: shardings by name.
            leaf_tags: the tags of Leaf's table, on one of the stores.
            default: whether this is the process's default provider while it is open.
            create: what opening may create in the stores, as for `connect`.
            close_timeout: seconds that closing may take.
            clock: the time source; the system's clock by default.

        Raises:
            InvalidArgumentError: ``close_timeout`` is outside its range; or a generator neither is
                an aiocosid generator nor wraps one.
        """
        super().__init__(close_timeout=close_timeout, clock=clock)
        for name, generator in generators.items():
            _check_ours(name, generator)
        self._generators = dict(generators)
        self._shared = tuple(leases)
        self._stores = tuple(stores)
        self._borrowed = tuple(borrowed)
        self.store: Store | None = store
        self.sharding: dict[str, Sharding[Any]] = dict(sharding or {})
        self.leaf_tags: LeafTags[LeafSegmentId] | None = leaf_tags
        self._creates = check_create(create)
        self._default = default
        self._in_part = False
        self._in_use: AbstractContextManager[object] | None = None

    def open_in_part(self) -> None:
        """Let opening leave out generators whose machine ids are in a quarantine.

        They are opened automatically once the store grants machine ids; until then they issue no
        ids.  Call this before the provider is opened.
        """
        self._in_part = True

    @property
    def share(self) -> AnyGenerator:
        """The default generator, ``__share__``; raises `GeneratorMissingError` if there is none."""
        return self[SHARE]

    def _label(self) -> str:
        return "ConfiguredProvider"

    def _leases(self) -> tuple[MachineIdLease, ...]:
        return self._shared

    def _reset(self) -> None:
        self._end_use()  # from an earlier opening, on a loop that has died

    async def _start(self) -> None:
        root = self._root
        await super()._start()
        for store in (*self._stores, *self._borrowed):
            await create_in(store, self._creates)
        for lease in self._shared:
            lease._host = root
        if self.leaf_tags is not None:
            await self.leaf_tags.__aenter__()
        refused: dict[str, Exception] = {}
        late: list[str] = []
        async with anyio.create_task_group() as group:
            for name in self._generators:
                group.start_soon(self._open_one, name, root, refused, group.cancel_scope, late)
        self._check_same_life(root)
        for name in late:
            logger.warning("%r has no ids yet: its machine ids are in quarantine", name)
            if root is not None:
                root.start_soon(self._follow, name, root, name=f"aiocosid open {name}")
        for name, error in refused.items():
            if isinstance(error, CosIdError):
                raise _named(error, name) from error.__cause__
            error.add_note(f"generator {name!r} could not be opened")
            raise error
        if self._default:
            self._in_use = use_provider(self)
            self._in_use.__enter__()

    async def _open_one(
        self,
        name: str,
        root: TaskRoot | None,
        refused: dict[str, Exception],
        scope: anyio.CancelScope,
        late: list[str],
    ) -> None:
        generator = component_of(self._generators[name])
        try:
            await generator._end_earlier_life()  # a separate opening; this may take a while
            self._check_same_life(root)
            await open_in(generator, root)
        except Exception as error:  # noqa: BLE001 - the group would wrap it
            if self._in_part and _is_quarantined(error):
                late.append(name)
                return
            refused[name] = error
            scope.cancel()

    async def _follow(self, name: str, root: TaskRoot) -> None:
        """Open a generator that was left out, as soon as possible."""
        generator = component_of(self._generators[name])
        while self._root is root:
            await self._sleep(_PAUSE)
            try:
                self._check_same_life(root)
                await open_in(generator, root)
            except Exception as error:  # noqa: BLE001 - otherwise it would end all others
                if not isinstance(error, CosIdError) or not error.retryable:
                    if self._root is root:
                        logger.error("%r stays without ids: %s", name, error)  # noqa: TRY400
                    return
            else:
                logger.warning("%r hands out ids now", name)
                return

    def _check_same_life(self, root: TaskRoot | None) -> None:
        """Raise if the provider was closed while it was opening, even if it was reopened."""
        self._check_usable()
        if root is None or self._root is not root:
            raise ClosedError(self._label())

    def fail_fast(self) -> None:
        """Make calls fail soon while the store is down, including those to Leaf's tags.

        Raises:
            ClosedError: the provider is not open; another `CosIdError` if there is a more specific
                reason.
        """
        super().fail_fast()
        if self.leaf_tags is not None:
            self.leaf_tags.fail_fast()

    async def _drain(self) -> None:
        try:
            await super()._drain()
        finally:
            if self.leaf_tags is not None:
                await self.leaf_tags.aclose()

    def _stop(self, reason: CosIdError) -> None:
        self._end_use()
        super()._stop(reason)

    def _end_use(self) -> None:
        in_use, self._in_use = self._in_use, None
        if in_use is not None:
            in_use.__exit__(None, None, None)

    async def _release(self) -> None:
        """Close the connections of the generators' own distributors, then the stores."""
        errors: list[Exception] = []
        closings: list[Callable[[], Awaitable[object]]] = [
            *(partial(release, each) for each in self._hosted()),
            *(store.aclose for store in self._stores),
        ]
        for close in closings:
            try:
                await close()
            except Exception as error:  # noqa: BLE001 - raised once all are closed
                errors.append(error)
        if errors:
            raise errors[0]


def _check_ours(name: str, generator: object) -> None:
    try:
        component_of(generator)
    except AttributeError:
        rule = "must be a generator of this library, or one that wraps such a generator"
        raise InvalidArgumentError(f"generators[{name!r}]", generator, rule) from None


def _is_quarantined(error: Exception) -> bool:
    return isinstance(error, MachineIdUnavailableError) and isinstance(
        error.__cause__, MachineIdQuarantineError
    )


def _named(error: CosIdError, name: str) -> CosIdError:
    """Return the error with the generator's name added to its message."""
    named = error.again()
    named.args = (f"generator {name!r} could not be opened: {error}",)
    return named
