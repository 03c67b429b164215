"""The generator for threads: buffered ids, and calls to the background loop for more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeVar, cast, overload

from .._life import fork
from .._life.callers import MAX_BATCH
from .._life.clock import SYSTEM_CLOCK
from .._life.fork import NotCopyable
from ..abc.checks import check_integer
from ..errors import CosIdError, ForkedError, WouldBlock
from ._batches import (
    DEFAULT_BATCH,
    check_batch,
    check_make,
    check_order,
    check_timeout,
    grow_old,
    ids_of,
    step_of,
)
from ._grouping import check_groups
from ._session import LoopSession, may_wait, refuse_on_a_loop
from ._steps import locked_step

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from ..abc import AnyGenerator, IdGenerator, Statistics, TextIdGenerator

__all__ = ("AWAIT", "DEFAULT_TIMEOUT", "SyncIdGenerator")

R = TypeVar("R")
T = TypeVar("T", bound=int | str)

DEFAULT_TIMEOUT: Final = 10.0  # seconds; more than the generators' own 5 s, whose errors say more
EMPTY: Final[Iterator[Any]] = iter(())

AWAIT: Final = "await the asynchronous generator's there"


class SyncIdGenerator(NotCopyable, Generic[T]):
    """A generator for threads and synchronous code; a buffered id needs no other thread.

    Any number of threads may share it.  `open`, ``with`` or otherwise the first use opens it.  In a
    forked child the first use opens it again, and the parent's buffered ids are not used.  It stays
    open until `close` or the end of the process, even if no variable refers to it any longer.

    Each thread gets rising ids.  In a thread that runs an event loop no call waits: it returns a
    buffered id, or raises `WouldBlock`.  In a notebook, first call `aiocosid.sync.allow_waiting`.
    """

    __slots__ = (
        "__weakref__",
        "_asked_batch",
        "_batch",
        "_find",
        "_is_ahead",
        "_label",
        "_owns_session",
        "_pending",
        "_piece",
        "_session",
        "_timer",
    )

    @overload
    def __init__(
        self: SyncIdGenerator[int],
        make: Callable[[], AbstractAsyncContextManager[IdGenerator]],
        *,
        batch: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None: ...

    @overload
    def __init__(
        self: SyncIdGenerator[str],
        make: Callable[[], AbstractAsyncContextManager[TextIdGenerator]],
        *,
        batch: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None: ...

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[AnyGenerator]],
        *,
        batch: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Describe a generator; the first use creates and opens it.

        Args:
            make: returns a generator of any kind that is not open yet, or any other asynchronous
                context manager that yields one, for example from a function decorated with
                `asynccontextmanager`.  The background loop calls it, and calls it again in a forked
                child, where it should not use objects of the parent.
            batch: ids taken at once.  For a `SegmentChainId` or a `SegmentId` without ``ttl``, also
                as text without a date, the default is the step, at most 1000, and the next batch is
                fetched before the last one is used up.  For any other kind the default is 1, so
                that each call gets a new id; a larger batch of such a kind is dropped after 0.1
                seconds, and is refused for a strict `SegmentId`.
            timeout: maximum seconds that a call waits, including opening; up to
                `threading.TIMEOUT_MAX`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        check_make(make, "a generator")
        check_timeout(timeout)
        session = LoopSession(make, label=type(self).__name__, timeout=timeout)
        self._describe(session, _itself, batch, session.label, owns_session=True)

    @classmethod
    def _of(
        cls,
        session: LoopSession[Any],
        find: Callable[[Any], Awaitable[AnyGenerator]],
        name: str,
    ) -> Self:
        """Return the handle of a generator that a provider opens and closes."""
        handle = cls.__new__(cls)
        handle._describe(session, find, None, f"{cls.__name__} {name}", owns_session=False)
        return handle

    def _describe(
        self,
        session: LoopSession[Any],
        find: Callable[[Any], Awaitable[AnyGenerator]],
        batch: int | None,
        label: str,
        *,
        owns_session: bool,
    ) -> None:
        check_batch(batch)
        self._session, self._owns_session, self._label = session, owns_session, label
        self._find = find
        self._asked_batch = batch
        self._pending: Future[Iterator[T]] | None = None  # the next batch
        self._timer: object = None  # for the last batch that expires
        self._drop()
        session.holders.add(self)
        fork.watch(self)

    def _forget(self) -> None:
        if self._pending is not None:
            fork.abandoned.append(self._pending)
        self._drop()

    def _drop(self) -> None:
        self._piece: Iterator[T] = EMPTY
        self._pending = None
        self._batch: int | None = self._asked_batch  # None until the kind is known
        self._is_ahead = False  # the next batch is requested when one is buffered

    def _choose(self, batch: int | None) -> None:
        """Use the first caller's batch from now on."""
        self._asked_batch = self._batch = batch

    # Taking ids.

    def next_id(self) -> T:
        """Return the next id; if none is buffered, wait for the background loop.

        Raises:
            WouldBlock: no id is buffered, and an event loop runs in this thread; or a signal
                handler called this during another call.
            SegmentUnavailableError: no id arrived within the timeout.
            ClosedError: the generator was closed, perhaps while this call waited.
            ForkedError: a signal handler forked during this call, and this is the child.
            CosIdError: as for opening the generator, and for its own `next_id`.
        """
        for new_id in self._piece:
            return new_id
        return self._bring(1)[0]

    def next_ids(self, n: int) -> list[T]:
        """Return exactly ``n`` ids in rising order, 1 to 10 million, or none at all.

        Raises:
            InvalidArgumentError: ``n`` is not an integer, or is outside its range.
            CosIdError: as for `next_id`.
        """
        check_integer("n", n, at_least=1, at_most=MAX_BATCH)
        return self._bring(n)

    def next_id_nowait(self) -> T:
        """Return the next id if one is buffered.

        Raises:
            WouldBlock: no id is buffered; a refill has been started, except for a kind that buffers
                none.
            ClosedError: the generator was closed.
            ForkedError: a signal handler forked during this call, and this is the child.
        """
        for new_id in self._piece:
            return new_id
        return self._in_one_process(self._take_now)

    def _take_now(self) -> T:
        taken: list[T] = []
        if self._batch == 1:
            self._session.check_open()
            raise WouldBlock
        if self._serve(taken, 1) is not None:
            raise WouldBlock
        return taken[0]

    def _bring(self, n: int) -> list[T]:
        return self._in_one_process(lambda: self._gather(n))

    def _in_one_process(self, take: Callable[[], R]) -> R:
        """Take ids, unless a signal handler forks meanwhile and this is the child."""
        process = fork.generation
        try:
            taken = take()
        except Exception as error:  # perhaps from an interrupted step
            if process == fork.generation:
                raise
            raise _forked() from error
        # This is one line, so that Python runs no signal handler within it.
        return taken if process == fork.generation else _raise(_forked())

    def _gather(self, n: int) -> list[T]:
        """Take buffered ids, and wait for the missing ones."""
        taken: list[T] = []
        deadline = SYSTEM_CLOCK.monotonic() + self._session.timeout
        is_first = True
        if self._batch is None and may_wait():
            self._wait(self._learn)
        while self._batch != 1:
            missing = self._serve(taken, n)
            if missing is None:
                return taken
            fetch, is_ours = missing
            refuse_on_a_loop("waiting for an id", AWAIT)
            try:
                self._session.outcome(fetch, deadline)
            except CosIdError:
                # An earlier caller's request may have failed before this call.
                if is_ours or not is_first or not fetch.done():
                    raise
            is_first = False
        refuse_on_a_loop("waiting for an id", AWAIT)
        return taken + self._fetch_now(n - len(taken), deadline)

    def _fetch_now(self, n: int, deadline: float) -> list[T]:
        """Take ids from a generator of which none are buffered."""
        return list(self._outcome(lambda value: self._fetch(value, n), deadline))

    def _outcome(self, work: Callable[[Any], Awaitable[R]], deadline: float) -> R:
        """Do the work on the loop, and cancel it if this call ends before that."""
        fetch = self._session.start(work)
        try:
            return self._session.outcome(fetch, deadline)
        except BaseException:
            fetch.cancel()
            raise

    @locked_step
    def _serve(self, taken: list[T], n: int) -> tuple[Future[Iterator[T]], bool] | None:
        """Take buffered ids, up to ``n`` in all.

        Returns:
            None if that is enough; otherwise the future to wait for, and whether it was requested
            by this call.
        """
        process = fork.generation
        taken += islice(self._piece, n - len(taken))
        fetch = self._pending
        if len(taken) < n and fetch is not None:
            if fetch.done():
                # First, so that an interruption from here on only leaves a gap.
                self._pending = None
                self._finish(fetch, taken, n, process)
            elif not self._session.is_alive:
                self._pending = None
        if len(taken) == n:
            return None
        is_ours = self._pending is None
        return self._order(n - len(taken)), is_ours

    def _finish(self, fetch: Future[Iterator[T]], taken: list[T], n: int, process: int) -> None:
        if fetch.cancelled() or fetch.exception() is not None:
            return
        piece = fetch.result()
        taken += islice(piece, n - len(taken))
        self._piece = piece if process == fork.generation else EMPTY  # one line, as above
        if self._is_ahead and len(taken) == n:
            with suppress(CosIdError):  # the next call requests it again
                self._order(1)

    def _order(self, missing: int) -> Future[Iterator[T]]:
        if self._pending is None:
            self._pending = self._session.submit(lambda value: self._fetch(value, missing))
        return self._pending

    # On the background loop.

    async def _fetch(self, value: object, missing: int) -> Iterator[T]:
        generator = await self._find(value)
        batch = self._learn(generator)
        ids = await ids_of(generator, max(batch, missing), missing)
        piece = iter(cast("list[T]", ids))
        if batch > 1 and not self._is_ahead:
            self._timer = asyncio.create_task(grow_old(piece))
        return piece

    def _learn(self, generator: AnyGenerator) -> int:
        """Choose how many ids are taken at once, and whether they are taken ahead of use."""
        check_groups(generator)
        step = step_of(generator)
        batch = self._asked_batch or min(step, DEFAULT_BATCH)
        check_order(generator, batch)
        self._is_ahead = step > 1 and batch > 1
        self._batch = batch
        return batch

    # Statistics, opening and closing.

    def statistics(self) -> Statistics:
        """Return a frozen snapshot of the generator, which counts ids buffered here as issued.

        Raises:
            CosIdError: as for `next_id`.
        """
        refuse_on_a_loop("statistics()", AWAIT)
        return self._wait(lambda generator: generator.statistics())

    def open(self) -> None:
        """Open it now, even after it was closed; return once it can issue ids.

        Raises:
            WouldBlock: an event loop runs in this thread.
            CosIdError: as for `next_id`.
        """
        refuse_on_a_loop("open()", "use the asynchronous generator there")
        if self._owns_session:
            self._session.allow()
        self._wait(self._learn)
        if self._is_ahead:
            locked_step(self._order)(1)

    def close(self) -> None:
        """Close it; the buffered ids are a gap.  Idempotent, and callable from any thread.

        Waiting calls raise `ClosedError`.  A provider closes its generators itself, so for one of
        them this only drops the buffered ids.

        Raises:
            WouldBlock: an event loop runs in this thread.
        """
        if self._owns_session:
            self._session.close()
        else:
            locked_step(self._drop)()

    def _wait(self, look: Callable[[AnyGenerator], R]) -> R:
        async def work(value: object) -> R:
            return look(await self._find(value))

        return self._session.call(work)

    def __enter__(self) -> Self:
        """Open it."""
        self.open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Show its name, whether it is open, and how many ids are buffered."""
        held = length_hint(self._piece)
        return f"<{self._label} {self._session.condition} in_hand={held}>"


def _forked() -> ForkedError:
    return ForkedError("what this call had buffered", remedy="ask again in this process")


def _raise(error: Exception) -> NoReturn:
    raise error


async def _itself(value: AnyGenerator) -> AnyGenerator:
    return value
