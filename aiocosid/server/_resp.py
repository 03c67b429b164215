"""RESP, the Redis protocol: a connection's commands, in order, and their replies.

Commands that arrive together are served together.  Additions to one counter, with no other command
between them, become one addition on the store, and additions to different counters run
concurrently.  A command that is answered without waiting needs no task.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from inspect import isawaitable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .._life.clock import SYSTEM_CLOCK
from ..errors import CosIdError, IdOverflowError, WouldBlock
from ._problems import FAILURES, Problem, problem_of
from ._resp_codec import Commands, RespError, encoded
from ._service import grant
from ._unfinished import reset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..abc import Clock, IdSegmentDistributor
    from ._service import Service
    from ._tokens import Access

__all__ = (
    "NO_ACCESS",
    "Adder",
    "Command",
    "RespError",
    "RespProtocol",
    "Session",
    "encoded",
)

logger = logging.getLogger("aiocosid.server")

MOST_AT_ONCE: Final = 500
"""Commands that are served before other connections get their turn."""

STRANGERS_AT_ONCE: Final = 16
"""The same for clients that have not shown a token."""

STRANGER: Final = 4000
"""Bytes that the connection of such a client costs."""

MOST_BUFFERED: Final = 65_536
"""Bytes of replies that are buffered before they are written."""

MOST_TOGETHER: Final = 32
"""Counters to which one connection adds concurrently."""


NO_ACCESS: Final = "NOAUTH Authentication required."

OPEN: Final = frozenset({b"AUTH", b"HELLO", b"QUIT", b"RESET"})
"""Commands for clients that have not shown a token."""


class Session:
    """The state of one connection's client.

    Attributes:
        service: the server.
        clock: the clock by which tokens expire.
        protocol: 2 or 3.
        access: what the client may do; None before it has shown its token, and after the token has
            expired.
        name: the name that the client gave itself.
        number: the connection's number in this process.
        is_trusted: whether the client may do everything without a token.
        socket_name: the address of our socket, which decides whether a token is needed.
        token_name: the name of the token that the client has shown; empty without one.
        tokens: the server's tokens when the access was determined; the server may load others.
        is_closing: whether the connection ends after the reply to this command.
        counters: the counters that `Adder` has found for keys; cleared with each new access.
    """

    __slots__ = (
        "access",
        "clock",
        "counters",
        "is_closing",
        "is_trusted",
        "name",
        "number",
        "protocol",
        "service",
        "socket_name",
        "token_name",
        "tokens",
    )

    _numbers = count(1)

    def __init__(self, service: Service, clock: Clock) -> None:
        self.service = service
        self.clock = clock
        self.number = next(self._numbers)
        self.counters: dict[bytes, IdSegmentDistributor] = {}
        self.is_closing = False
        self.tokens = service.tokens
        self.is_trusted = not service.tokens
        self.socket_name: object = None
        self.reset()

    @property
    def is_stranger(self) -> bool:
        """Whether the client needs a token and has not shown a valid one."""
        return self.access is None

    def begin_at(self, socket_name: object) -> None:
        """Determine whether a token is needed on this socket; forget any token shown."""
        self.tokens = self.service.tokens
        self.socket_name = socket_name
        self.is_trusted = not self.tokens.needed_at(socket_name)
        self.set_access(self.tokens.anybody if self.is_trusted else None)

    def reset(self) -> None:
        """Forget what the client has said."""
        self.protocol = 2
        self.name = b""
        self.set_access(self.service.tokens.anybody if self.is_trusted else None)

    def set_access(self, access: Access | None) -> None:
        """Set what the client may do from now on."""
        self.access: Access | None = access
        self.token_name: str = access.token.name if access and access.token else ""
        self.counters.clear()

    def expire(self) -> None:
        """Remove the access if its token has expired or is no longer among the server's."""
        token = self.access and self.access.token
        if self.tokens is not self.service.tokens:
            self.begin_at(self.socket_name)
            if token and not self.is_trusted:
                self.set_access(self.tokens.access_by(token))
        if token and token.expires_ms is not None and self.clock.now_ms() >= token.expires_ms:
            self.set_access(None)


Command: TypeAlias = Callable[[Session, list[bytes]], Awaitable[object] | object]
"""Serves a command with the words that follow its name; returns a value for `encoded`.

An ``async def`` is awaited in a task.  A ``def`` is answered at once without a task; it may return
an awaitable if it must wait.  Both raise a `RespError`, a `Problem` or a `CosIdError`.
"""


def _no_access(_session: Session, _words: list[bytes]) -> object:
    raise RespError(NO_ACCESS)


class Adder:
    """A command that adds to a counter, so that several can be merged.

    Attributes:
        read: returns the counter and the number of ids, from the words that follow the command's
            name.
    """

    __slots__ = ("read",)

    def __init__(
        self, read: Callable[[Session, list[bytes]], tuple[IdSegmentDistributor, int]]
    ) -> None:
        self.read = read


def error_of(error: Exception) -> RespError:
    """Return the reply for an error, in Redis's vocabulary; unknown errors go to the log.

    redis-py and go-redis retry after ``LOADING`` by themselves.
    """
    if isinstance(error, RespError):
        return error
    if isinstance(error, IdOverflowError):
        return RespError("ERR increment or decrement would overflow")
    if isinstance(error, CosIdError):
        problem = problem_of(error)
        detail = problem.detail or f"the store refuses ({type(error).__name__})"
        is_passing = problem.retry_after is not None
        return RespError(f"LOADING {detail}; try again" if is_passing else f"ERR {detail}")
    if isinstance(error, Problem):
        code = {401: "NOAUTH", 403: "NOPERM"}.get(error.status, "ERR")
        return RespError(f"{code} {error.detail or error.kind}")
    FAILURES.note(error, "a command has failed", trace=True)
    return RespError("ERR internal error")


NOT_CONTIGUOUS: Final = encoded(
    RespError("ERR segments of this store are not contiguous; take one id at a time")
)


OK: Final = b"OK"
"""The status of a successful command."""

ERROR: Final = ord("-")


def status_of(reply: bytes) -> bytes:
    """Return the status to count for a reply: `OK`, or the code of its error."""
    return reply[1:-2].partition(b" ")[0] if reply[0] == ERROR else OK


Work: TypeAlias = "Iterator[Awaitable[object]]"
"""Serves commands; yields awaitables that must finish before it continues."""


class Additions:
    """Additions to one counter that are made together, with one call to the store if possible.

    Attributes:
        name: the name of the last command.
    """

    __slots__ = (
        *("_all_alike", "_began", "_counter", "_names", "_places", "_session", "_steps", "_token"),
        "name",
    )

    def __init__(
        self, counter: IdSegmentDistributor, session: Session, name: bytes, began: float
    ) -> None:
        """Start without additions.

        Args:
            counter: the counter.
            session: the session that sent them.
            name: the name of the first command.
            began: when the first command was read, monotonic seconds.
        """
        self._counter = counter
        self._session = session
        self._began = began
        self._token = session.token_name
        self.name = name
        self._names = [(0, name)]  # each name, and where its commands begin
        self._places: list[int] = []
        self._steps: list[int] = []
        self._all_alike = True  # False once one of them is refused

    def call(self, name: bytes) -> None:
        """Treat the following additions as commands with this name."""
        self.name = name
        self._names.append((len(self._places), name))

    def add(self, place: int, step: int) -> None:
        """Add one command for ``step`` ids, whose reply has this place."""
        self._places.append(place)
        self._steps.append(step)

    def settle_nowait(self, replies: list[bytes]) -> bool:
        """Make the additions if the store is in this process; return whether they are settled."""
        total = sum(self._steps)
        if total > (self._counter.step_limit or total):
            return False
        try:
            last = self._counter.next_max_id_nowait(total)
        except (WouldBlock, IdOverflowError):
            return False
        except Exception as error:  # noqa: BLE001 - unknown errors are logged there
            self._refuse(replies, 0, self._steps, error)
        else:
            self._answer(replies, 0, last, self._steps)
        self._session.service.calls.count += 1
        self._count(replies)
        return True

    async def settle(self, replies: list[bytes]) -> None:
        """Make the additions; never raises."""
        at = 0
        for steps in self._joined():
            await self._make(replies, at, steps)
            at += len(steps)
        self._count(replies)

    async def _make(self, replies: list[bytes], at: int, steps: Sequence[int]) -> None:
        try:
            last = await grant(self._counter, sum(steps), self._session.service.calls)
        except Exception as error:  # noqa: BLE001 - unknown errors are logged there
            if isinstance(error, IdOverflowError) and len(steps) > 1:
                for offset, step in enumerate(steps):  # perhaps there are ids for the first ones
                    await self._make(replies, at + offset, [step])
            else:
                self._refuse(replies, at, steps, error)
        else:
            self._answer(replies, at, last, steps)

    def _joined(self) -> list[list[int]]:
        """Return the steps in groups, each as large as one call may request."""
        limit = self._counter.step_limit or sum(self._steps)
        joined: list[list[int]] = [[]]
        room = limit
        for step in self._steps:
            if step > room and joined[-1]:
                joined.append([])
                room = limit
            joined[-1].append(step)
            room -= step
        return joined

    def _answer(self, replies: list[bytes], at: int, last: int, steps: Sequence[int]) -> None:
        stride = self._counter.stride
        value = last - sum(steps) * stride
        for place, step in zip(self._places[at:], steps, strict=False):
            value += step * stride
            replies[place] = b":%d\r\n" % value if stride == 1 or step == 1 else NOT_CONTIGUOUS
        self._all_alike &= stride == 1

    def _refuse(
        self, replies: list[bytes], at: int, steps: Sequence[int], error: Exception
    ) -> None:
        reply = encoded(error_of(error))
        for place in self._places[at : at + len(steps)]:
            replies[place] = reply
        self._all_alike = False

    def _count(self, replies: Sequence[bytes]) -> None:
        """Count the commands by name and status."""
        note = self._session.service.meters.note_commands
        took = self._session.clock.monotonic() - self._began
        if self._all_alike and len(self._names) == 1:  # nearly always
            note(self.name, self._token, OK, took, len(self._places))
            return
        ends = *(first for first, _ in self._names[1:]), len(self._places)
        for (first, name), end in zip(self._names, ends, strict=True):
            statuses = {OK: end - first}
            if not self._all_alike:
                statuses = Counter(status_of(replies[each]) for each in self._places[first:end])
            for status, size in statuses.items():
                note(name, self._token, status, took, size)


def _settle(added: dict[IdSegmentDistributor, Additions], replies: list[bytes]) -> Work:
    """Add everything in ``added`` to the counters, and empty ``added``."""
    waiting = [each for each in added.values() if not each.settle_nowait(replies)]
    added.clear()
    for start in range(0, len(waiting), MOST_TOGETHER):
        together = [each.settle(replies) for each in waiting[start : start + MOST_TOGETHER]]
        yield together[0] if len(together) == 1 else asyncio.gather(*together)


class RespProtocol(asyncio.Protocol):
    """One connection.

    Attributes:
        session: what the client has said about itself.
        transport: the connection's transport; None once it has ended.
        unread: an object that stays the same while the client reads too slowly; None while it does
            not.
    """

    def __init__(
        self,
        service: Service,
        commands: Mapping[bytes, Command | Adder],
        *,
        connections: set[Any] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Serve a connection that is yet to be made.

        Args:
            service: the server.
            commands: the commands by name, in capitals.
            connections: the open connections of the process; this one adds and removes itself.
            clock: the clock by which tokens expire and by which commands arrive too slowly.
        """
        self.session = Session(service, clock)
        self._connections: set[Any] = set() if connections is None else connections
        self._commands = commands
        self._reader = Commands(most=service.limits.body)
        self.transport: Any = None
        self._loop: Any = None
        self._task: asyncio.Task[None] | None = None
        self.unread: asyncio.Future[None] | None = None
        # Closes the connection of a client that ends no command.
        self._late: asyncio.Task[None] | None = None
        self._is_ending = False
        self._is_noted = False  # whether it holds bytes of an incomplete command

    # Methods that the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection."""
        self.transport = transport
        self._loop = asyncio.get_running_loop()
        self._connections.add(self)
        self.session.begin_at(transport.get_extra_info("sockname"))

    def data_received(self, data: bytes) -> None:
        """Serve the commands that are complete."""
        self._reader.feed(data)
        if self._task is None:
            self._begin()
        else:
            self.transport.pause_reading()  # until the received commands are served

    def eof_received(self) -> bool:
        """Answer what has arrived: a client that stops sending may still read (not with TLS)."""
        self._is_ending = True
        is_encrypted = self.transport.get_extra_info("sslcontext") is not None
        return self._task is not None and not is_encrypted

    def pause_writing(self) -> None:
        """Serve nothing more until the client reads its replies."""
        if self.unread is None:
            self.unread = self._loop.create_future()

    def resume_writing(self) -> None:
        """Continue serving."""
        writable, self.unread = self.unread, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection; the ids of a store call that is still running are a gap."""
        del exc
        self._connections.discard(self)
        self.session.service.unfinished.note(self, 0)
        self.transport = None
        self._drop_timer()
        self.resume_writing()

    def abort(self) -> None:
        """End at once, and drop the buffers now, because the loop may report the end late."""
        if self.transport is not None:
            reset(self.transport)
            self._reader = Commands(most=0)

    def shutdown(self) -> None:
        """Close the connection after the replies to the received commands."""
        self._is_ending = True
        if self._task is None and self.transport is not None:
            self.transport.close()

    # Serving.

    def _begin(self) -> None:
        """Serve what can be served without waiting, and the rest in a task."""
        work = self._work()
        waited = next(work, None)
        if waited is None:
            self._rest()
        else:
            self._task = self._loop.create_task(self._go_on(work, waited))

    async def _go_on(self, work: Work, waited: Awaitable[object]) -> None:
        try:
            await waited
            for each in work:
                await each
            self._rest()
        except Exception:
            logger.exception("a RESP connection has failed")
            if self.transport is not None:
                self.transport.abort()
        finally:
            self._task = None

    def _rest(self) -> None:
        """Wait for more commands, or end."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self._is_ending or self.session.is_closing or self._reader.error:
            transport.close()
            return
        if self._task is not None:
            transport.resume_reading()
        size = self._reader.held + (STRANGER if self.session.is_stranger else 0)
        if size or self._is_noted:
            self._is_noted = bool(size)
            self.session.service.unfinished.note(self, size)
        if self._reader.is_partial and self._late is None:
            self._late = self._loop.create_task(self._lose_patience())

    async def _lose_patience(self) -> None:
        await self.session.clock.sleep(self.session.service.limits.header_timeout)
        if self.transport is not None:
            self.transport.abort()

    def _drop_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _work(self) -> Work:
        session, reader = self.session, self._reader
        served = 0
        while not session.is_closing and self.transport is not None:
            session.expire()
            commands = reader.take(MOST_AT_ONCE, is_stranger=session.is_stranger)
            if commands:
                self._drop_timer()
                yield from self._serve(commands)
            if reader.error:
                reply = encoded(RespError(f"ERR Protocol error: {reader.error}"))
                meters = session.service.meters
                meters.note_commands(b"", session.token_name, status_of(reply), 0.0)
                yield from self._flush([reply])
            if not commands or reader.error:
                return
            served += len(commands)
            at_once = MOST_AT_ONCE if session.access else STRANGERS_AT_ONCE
            if served >= at_once and reader.is_partial:
                served = 0
                yield session.clock.sleep(0)

    def _serve(self, commands: Sequence[list[bytes]]) -> Work:
        session, table = self.session, self._commands
        clock, note = session.clock, session.service.meters.note_commands
        began = clock.monotonic()
        replies: list[bytes] = []
        added: dict[IdSegmentDistributor, Additions] = {}
        words: list[bytes] | None = None
        additions: Additions | None = None
        buffered = step = 0
        for command in commands:
            if command is words and additions is not None:  # the same command again
                additions.add(len(replies), step)
                replies.append(b"")
                continue
            words, additions = command, None
            name = command[0]
            run = table.get(name)
            if run is None:
                name = name.upper()
                run = table.get(name)
            if session.access is None and name not in OPEN:
                run = _no_access
            if isinstance(run, Adder):
                additions, step = self._join(run, command, name, added, replies, began=began)
                continue
            if added:
                yield from _settle(added, replies)
                began = clock.monotonic()
            token = session.token_name
            yield from self._run(run, command, replies)
            reply = replies[-1]
            ended = clock.monotonic()
            note(name if name in table else b"", token, status_of(reply), ended - began)
            began = ended
            buffered += len(reply)
            if session.is_closing or self.transport is None:
                break
            if buffered > MOST_BUFFERED:
                yield from self._flush(replies)
                buffered, began = 0, clock.monotonic()
        if added:
            yield from _settle(added, replies)
        yield from self._flush(replies)

    def _join(
        self,
        run: Adder,
        command: list[bytes],
        name: bytes,
        added: dict[IdSegmentDistributor, Additions],
        replies: list[bytes],
        *,
        began: float,
    ) -> tuple[Additions | None, int]:
        """Add to the additions of a counter; return them, and the number of ids."""
        session = self.session
        try:
            counter, step = run.read(session, command[1:])
        except Exception as error:  # noqa: BLE001 - unknown errors are logged there
            reply = encoded(error_of(error))
            took = session.clock.monotonic() - began
            session.service.meters.note_commands(name, session.token_name, status_of(reply), took)
            replies.append(reply)
            return None, 0
        additions = added.get(counter)
        if additions is None:
            additions = added[counter] = Additions(counter, session, name, began)
        elif additions.name != name:
            additions.call(name)
        additions.add(len(replies), step)
        replies.append(b"")
        access = session.access
        # If there is a quota, each command counts, so the next one must be parsed too.
        return (None if access is not None and access.is_counted else additions), step

    def _run(self, run: Command | None, command: list[bytes], replies: list[bytes]) -> Work:
        session = self.session
        try:
            if run is None:
                name = command[0][:64].decode("ascii", "backslashreplace")
                raise RespError(f"ERR unknown command {name!r}")  # noqa: TRY301 - handled like any other
            answer = run(session, command[1:])
            if not isawaitable(answer):
                replies.append(encoded(answer, protocol=session.protocol))
                return
        except Exception as error:  # noqa: BLE001 - unknown errors are logged there
            replies.append(encoded(error_of(error)))
            return
        yield self._await(answer, replies)

    async def _await(self, answer: Awaitable[object], replies: list[bytes]) -> None:
        try:
            replies.append(encoded(await answer, protocol=self.session.protocol))
        except Exception as error:  # noqa: BLE001 - unknown errors are logged there
            replies.append(encoded(error_of(error)))

    def _flush(self, replies: list[bytes]) -> Work:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"".join(replies))
        replies.clear()
        if self.unread is not None:
            yield self.unread
