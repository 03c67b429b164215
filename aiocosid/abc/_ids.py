"""The contracts of a generator, a segment distributor and a clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Protocol,
    Self,
    TypeAlias,
    cast,
    runtime_checkable,
)

from ..errors import UnsupportedByStoreError, WouldBlock
from .checks import check_integer, check_seconds, check_text, is_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import anyio
    from anyio.abc import TaskStatus

__all__ = (
    "DEFAULT_NAMESPACE",
    "DEFAULT_STEP",
    "MAX_ID",
    "SHARE",
    "AnyGenerator",
    "Clock",
    "GroupedId",
    "IdConverter",
    "IdGenerator",
    "IdSegmentDistributor",
    "Provider",
    "Statistics",
    "TextIdGenerator",
    "check_integer",
    "check_seconds",
    "check_text",
    "is_integer",
)

MAX_ID: Final = 2**63 - 1
"""The highest possible id: int64, as in CosId's ``long``."""

DEFAULT_NAMESPACE: Final = "cosid"
"""CosId's own default (``cosid.namespace``)."""

DEFAULT_STEP: Final = 1000
"""Ids per segment.  CosId's code says 10, its benchmarks and deployment guides 100 to 1000."""


class Clock(ABC):
    """The source of time: all code in the package reads the time, and waits, through a clock.

    `aiocosid.testing.ManualClock` is the other implementation.
    """

    __slots__ = ()

    @abstractmethod
    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back; only differences are meaningful."""

    @abstractmethod
    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970-01-01T00:00Z; it may step either way."""

    def wall_reader(self) -> Callable[[], int]:
        """Return the fastest function that reads the wall clock, in nanoseconds since 1970."""
        return lambda: self.now_ms() * 1_000_000

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for ``seconds``; a cancelled call ends at once."""

    @abstractmethod
    def move_on_after(
        self, seconds: float, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        """Return a cancel scope that ends its block after ``seconds``, like anyio's.

        Args:
            seconds: from entering the block.
            shield: whether the block is protected from outside cancellation until then.
        """


class GroupedId(int):
    """An id with its group, so that a number and its prefix always belong to the same period.

    It compares, sorts and prints as its number, like any other `int`.

    Attributes:
        group: the group that the number was counted in, such as ``20260116``.
    """

    group: str

    def __new__(cls, value: int, group: str) -> Self:
        """Make an id from a number and its group."""
        self = super().__new__(cls, value)
        self.group = group
        return self

    def __getnewargs__(self) -> tuple[int, str]:  # type: ignore[override]  # for pickle and copy
        """Return the arguments of `__new__`."""
        return int(self), self.group


class IdGenerator(ABC):
    """The contract of every generator, whatever its kind.

    Open it with ``async with``, or in your own task group with ``await tg.start(gen.run)``, and use
    it from the event loop on which it was opened.  After `aclose` it may be opened again.
    """

    __slots__ = ()

    @abstractmethod
    async def next_id(self) -> int:
        """Return the next id: positive, unique under its name, above every id handed out before.

        A cancelled call hands out nothing; an id that had already been chosen for it is a gap.

        Raises:
            SegmentUnavailableError: no id came within the generator's ``wait_timeout``, or the
                store raised an error that a retry cannot fix.
            IdOverflowError: the ids are used up.
            NotOpenError: the generator has not been opened.
            ClosedError: the generator was closed, also while this call waited.
            StoreRolledBackError: the store lost writes; the generator has ended.
            ForkedError: the generator belongs to the parent process.
            WrongLoopError: the generator was opened on another event loop or thread.
        """

    @abstractmethod
    async def next_ids(self, n: int) -> list[int]:
        """Return exactly ``n`` ids in rising order, all or nothing.

        They need not be contiguous.  A cancelled call hands out nothing; ids that had already been
        reserved for it are a gap.

        Args:
            n: how many, at least 1.

        Raises:
            InvalidArgumentError: ``n`` is not an integer, below 1 or above the generator's limit.
            CosIdError: as for `next_id`.
        """

    @abstractmethod
    def next_id_nowait(self) -> int:
        """Return the next id if one is buffered.

        Raises:
            WouldBlock: none is buffered; a refill is under way.  A `SegmentId` with a step of 1
                buffers none, and always raises it.
            CosIdError: as for `next_id`.
        """

    @abstractmethod
    def statistics(self) -> Statistics:
        """Return a frozen snapshot of the generator; cheap, and never waits."""

    @abstractmethod
    async def run(self, *, task_status: TaskStatus[object] = ...) -> None:
        """Open the generator in the calling task and stay until it is closed or cancelled.

        Use it as ``await task_group.start(gen.run)``, which returns once there are ids.

        Raises:
            CosIdError: it could not be opened; see the generator's class.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close the generator; waiting callers get `ClosedError`.

        It is idempotent, and safe from any task, in any order and in a cancelled scope; a second
        caller waits for the same end.  A store call under way may take the generator's
        ``close_timeout``, twice that if its driver ignores cancellation; closing the connections
        may take some seconds more.
        """

    async def __aenter__(self) -> Self:
        """Open the generator; returns when it can hand out ids."""
        raise NotImplementedError

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the generator."""
        await self.aclose()


class IdSegmentDistributor(ABC):
    """Asks a store for the next max id.  `next_max_id` is its only duty.

    A custom subclass calls ``super().__init__`` and implements `next_max_id`; everything else has a
    default.  Check it with `aiocosid.testing.IdSegmentDistributorContract`.

    Attributes:
        namespace: groups the counters of one system.
        name: the counter's name in the namespace.
        offset: where a new counter starts; the first id is ``offset + 1``.
        step: ids per segment.
    """

    __slots__ = ("__weakref__", "name", "namespace", "offset", "step")

    store: str = "store"
    """The kind of store, for error messages."""

    stride: int = 1
    """The distance from one id to the next: above 1 for a counter of one residue class.

    A call for ``step`` ids then grants ``range(max_id - (step - 1) * stride, max_id + 1, stride)``.
    It is read right after each call, and may change with the next one; 0 while it is not known."""

    step_limit: int | None = None
    """The most ids that one call may request, at least ``step``; None for no limit."""

    order_risk: str = "this distributor does not declare that its counter is linearizable"
    """Why a call may get lower ids than a call that ended before it began.

    It is empty for a linearizable counter, on which no call ever does, even through crashes and
    elections.  A `SegmentId` can only be ``strict`` on such a counter."""

    def __init__(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> None:
        """Describe a counter; nothing is read or written yet.

        Args:
            namespace: not empty, without NUL.
            name: not empty, without NUL.
            offset: at least 0; used only when the counter does not exist yet.
            step: ids per segment, at least 1.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        check_text("namespace", namespace)
        check_text("name", name)
        check_integer("offset", offset, at_least=0)
        check_integer("step", step, at_least=1)
        self.namespace: str = namespace
        self.name: str = name
        self.offset: int = offset
        self.step: int = step

    @property
    def namespaced_name(self) -> str:
        """``{namespace}.{name}``, the counter's key in CosId's stores."""
        return f"{self.namespace}.{self.name}"

    @abstractmethod
    async def next_max_id(self, step: int) -> int:
        """Add ``step`` to the store's counter and return the new value; create it on first use.

        It takes effect in one atomic operation: only the caller owns ``(result - step, result]``,
        or that many ids a `stride` apart.  Applying it twice must be safe, because drivers resend:
        that may waste a range, but must not give one range to two callers.  A cancelled call may
        have taken effect on the store; its connection must not go back to a pool, where its late
        reply would be read as another call's.

        Args:
            step: how many ids to reserve, at least 1.

        Raises:
            InvalidArgumentError: ``step`` is not an integer, or below 1; nothing was written.
            IdOverflowError: the counter would pass 2^63-1; nothing was written.
            StoreUnavailableError: the store cannot be reached or does not answer.
            StoreError: the store refuses (rights, missing table, no integer, went backwards).
        """

    def next_max_id_nowait(self, step: int) -> int:
        """Do the same without suspending, if the store is in this process.

        Args:
            step: how many ids to reserve, at least 1.

        Raises:
            WouldBlock: this store must be awaited (the default).
        """
        raise WouldBlock

    async def peek(self) -> int | None:
        """Return the last id that any process has reserved in the store; None if there is none.

        It changes nothing, and creates nothing.  Another process may reserve more at any time.

        Raises:
            UnsupportedByStoreError: the store cannot read a counter without changing it (the
                default).
            CorruptCounterError: the store holds something other than an integer.
            StoreError: the store refuses or cannot be reached.
        """
        raise UnsupportedByStoreError(self.store, "it cannot read a counter without changing it")

    def resume_above(self, reached: int) -> None:
        """Continue above the max id that an earlier object for this counter reached.

        A generator that replaces another one calls it before its first fetch.  Some stores, such as
        a tiered one, may answer lower than ``reached`` although nothing was lost; their distributor
        must answer above it from now on.  The default does nothing.

        Args:
            reached: the highest max id that the earlier object is known to have answered.
        """

    async def aopen(self) -> None:
        """Prepare for this process and event loop; called whenever a generator on it is opened.

        Raises:
            ForkedError: it uses a client of the parent process.
        """

    async def aclose(self) -> None:
        """Release what this object has opened itself; never what the user passed in.

        A distributor made by ``from_url`` closes its connections here and opens new ones when it is
        used again.
        """

    def statistics(self) -> object | None:
        """Return a frozen dataclass for the statistics of a generator, or None (the default).

        Cheap, and never waits.
        """
        return None

    def __repr__(self) -> str:
        """Show the counter and the step."""
        return f"<{type(self).__name__} {self.namespaced_name} step={self.step}>"


class IdConverter(ABC):
    """Writes an id as text and reads it back.  It has no changing state, and never truncates.

    Attributes:
        is_timeless: whether the text of an id is the same whenever it is written, provided that
            this also holds for an ``inner`` converter.  Threads may then take a thousand texts at
            once and keep them.  Each subclass must declare it itself.
    """

    __slots__ = ()

    is_timeless: ClassVar[bool] = False

    @abstractmethod
    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id.

        Raises:
            InvalidIdError: the converter has no text for this id; it never shortens one.
        """

    @abstractmethod
    def as_int(self, text: str, /) -> int:
        """Return the id of a text, so that ``as_int(as_str(id)) == id``.

        Raises:
            InvalidIdError: `as_str` does not write this text.
        """

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids, in their order; never waits.

        Raises:
            InvalidIdError: as for `as_str`, for the first id without a text.
        """
        return list(map(self.as_str, ids))

    def as_tree(self) -> dict[str, object]:
        """Return ``kind`` and settings, ready for JSON, as CosId's actuator shows them."""
        return {"kind": type(self).__name__}


class TextIdGenerator(ABC):
    """The contract of a generator whose ids are text: `IdGenerator`'s, with `str` for `int`.

    Whether the texts sort in the order in which they were made depends on the kind.
    """

    __slots__ = ()

    @abstractmethod
    async def next_id(self) -> str:
        """Return the next id as text; see `IdGenerator.next_id`."""

    @abstractmethod
    async def next_ids(self, n: int) -> list[str]:
        """Return exactly ``n`` ids as text; see `IdGenerator.next_ids`."""

    @abstractmethod
    def next_id_nowait(self) -> str:
        """Return the next id as text if one is buffered; see `IdGenerator.next_id_nowait`."""

    @abstractmethod
    def statistics(self) -> Statistics:
        """Return a frozen snapshot of the generator; cheap, and never waits."""

    @abstractmethod
    async def run(self, *, task_status: TaskStatus[object] = ...) -> None:
        """Open in the calling task and stay; see `IdGenerator.run`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the generator; see `IdGenerator.aclose`."""

    async def __aenter__(self) -> Self:
        """Open the generator; returns when it can hand out ids."""
        raise NotImplementedError

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the generator."""
        await self.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """A frozen snapshot of a generator; each kind of generator adds to it.

    Attributes:
        kind: the generator's class name.
        namespace: the namespace of its counter.
        name: its name in the namespace.
    """

    kind: str
    namespace: str
    name: str

    def as_tree(self) -> dict[str, object]:
        """Return the snapshot as CosId's actuator shows it, ready for JSON.

        For a kind of generator that CosId does not have, it contains all fields in camelCase.
        """
        return _facts(self)


def _facts(statistics: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass of any kind
    # Not asdict(), which would also copy errors, down to their causes.
    return {_camel(f.name): _plain(getattr(statistics, f.name)) for f in fields(statistics)}


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(map(str.capitalize, rest))


def _plain(value: object) -> object:
    """Return a value that JSON supports: an error or an enum becomes text."""
    if is_dataclass(value):
        return _facts(value)
    if isinstance(value, list | tuple):
        return list(map(_plain, cast("Sequence[object]", value)))
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


SHARE: Final = "__share__"
"""The name of the default generator; CosId's own (``IdGeneratorProvider.SHARE``)."""

AnyGenerator: TypeAlias = IdGenerator | TextIdGenerator
"""A generator of either kind."""


@runtime_checkable
class Provider(Protocol):
    """Named generators, opened and closed together: `IdProvider`, and what `configure` builds."""

    def __getitem__(self, name: str, /) -> AnyGenerator:
        """Return the generator of this name; KeyError if there is none."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Count the generators."""
        raise NotImplementedError

    def statistics(self) -> dict[str, dict[str, object]]:
        """Return a tree ready for JSON, by name, as CosId's actuator shows it; never waits."""
        raise NotImplementedError
