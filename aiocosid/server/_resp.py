"""RESP, the protocol of Redis: commands of a connection, in order, and their replies.

Commands that have arrived together are served together: additions to one counter, with no other
command between them, are one addition on the store, and those to different counters run at a time.
No task is made for what is answered without waiting.
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
"""Commands that are served before other connections have their turn."""

STRANGERS_AT_ONCE: Final = 16
"""The same of those who have not shown a token."""

STRANGER: Final = 4000
"""Bytes that the connection of one costs."""

MOST_BUFFERED: Final = 65_536
"""Bytes of replies that are kept before they are written."""

MOST_TOGETHER: Final = 32
"""Counters that one connection adds to at a time."""


NO_ACCESS: Final = "NOAUTH Authentication required."

OPEN: Final = frozenset({b"AUTH", b"HELLO", b"QUIT", b"RESET"})
"""Commands of those who have not shown a token."""


class Session:
    """What one connection has said about itself.

    Attributes:
        service: the server.
        clock: tells when a token expires.
        protocol: 2 or 3.
        access: what it may do; None before it has shown its token, and after that has expired.
        name: what it calls itself.
        number: tells it from the other connections of this process.
        is_trusted: whether it may do everything without a token.
        socket_name: of our end; it says whether a token is needed there.
        token_name: of the token that it has shown; empty without one.
        tokens: of the server, when it was looked for its access; it may read others.
        is_closing: whether the connection ends after the reply to this command.
        counters: what `Adder` has found by the words of a key; emptied with each new access.
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
        """Whether the client needs a token, and has not shown one that is valid."""
        return self.access is None

    def begin_at(self, socket_name: object) -> None:
        """Find out whether a token is needed on this socket; forget what was shown."""
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
        """Let the client do something else from now on."""
        self.access: Access | None = access
        self.token_name: str = access.token.name if access and access.token else ""
        self.counters.clear()

    def expire(self) -> None:
        """Take the access away if its token has expired, or is none of the server's any more."""
        token = self.access and self.access.token
        if self.tokens is not self.service.tokens:
            self.begin_at(self.socket_name)
            if token and not self.is_trusted:
                self.set_access(self.tokens.access_by(token))
        if token and token.expires_ms is not None and self.clock.now_ms() >= token.expires_ms:
            self.set_access(None)


Command: TypeAlias = Callable[[Session, list[bytes]], Awaitable[object] | object]
"""Serves a command, by the words that follow its name; returns what `encoded` takes.

An ``async def`` is awaited in a task.  A ``def`` is answered at once, without one; it may return an
awaitable, if it finds that it has to wait.  It raises a `RespError`, a `Problem` or a `CosIdError`.
"""


def _no_access(_session: Session, _words: list[bytes]) -> object:
    raise RespError(NO_ACCESS)


class Adder:
    """A command that adds to a counter, so that it can be joined with others.

    Attributes:
        read: returns the counter and how many ids, by the words that follow the command's name.
    """

    __slots__ = ("read",)

    def __init__(
        self, read: Callable[[Session, list[bytes]], tuple[IdSegmentDistributor, int]]
    ) -> None:
        self.read = read


def error_of(error: Exception) -> RespError:
    """Return the reply that an error is, in Redis's vocabulary; what is unknown goes to the log.

    ``LOADING`` is what redis-py and go-redis try again by themselves.
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
"""The status of a command that is no error."""

ERROR: Final = ord("-")


def status_of(reply: bytes) -> bytes:
    """Return what a command is counted as: `OK`, or the code of the error that it is answered."""
    return reply[1:-2].partition(b" ")[0] if reply[0] == ERROR else OK


Work: TypeAlias = "Iterator[Awaitable[object]]"
"""Serves commands; yields what must be awaited before it goes on."""


class Additions:
    """Additions to one counter that are made together, by one call to the store if it can be.

    Attributes:
        name: of the last command.
    """

    __slots__ = (
        *("_all_alike", "_began", "_counter", "_names", "_places", "_session", "_steps", "_token"),
        "name",
    )

    def __init__(
        self, counter: IdSegmentDistributor, session: Session, name: bytes, began: float
    ) -> None:
        """Begin with none.

        Args:
            counter: the counter.
            session: whose they are.
            name: of the first command.
            began: when that was read, monotonic seconds.
        """
        self._counter = counter
        self._session = session
        self._began = began
        self._token = session.token_name
        self.name = name
        self._names = [(0, name)]  # and where those of another name begin
        self._places: list[int] = []
        self._steps: list[int] = []
        self._all_alike = True  # until one of them is refused

    def call(self, name: bytes) -> None:
        """Let the following ones be of that command."""
        self.name = name
        self._names.append((len(self._places), name))

    def add(self, place: int, step: int) -> None:
        """Join one of ``step`` ids, whose reply has that place."""
        self._places.append(place)
        self._steps.append(step)

    def settle_nowait(self, replies: list[bytes]) -> bool:
        """Make them, if the store is in this process; return whether they are made, or refused."""
        total = sum(self._steps)
        if total > (self._counter.step_limit or total):
            return False
        try:
            last = self._counter.next_max_id_nowait(total)
        except (WouldBlock, IdOverflowError):
            return False
        except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
            self._refuse(replies, 0, self._steps, error)
        else:
            self._answer(replies, 0, last, self._steps)
        self._session.service.calls.count += 1
        self._count(replies)
        return True

    async def settle(self, replies: list[bytes]) -> None:
        """Make them; never raises."""
        at = 0
        for steps in self._joined():
            await self._make(replies, at, steps)
            at += len(steps)
        self._count(replies)

    async def _make(self, replies: list[bytes], at: int, steps: Sequence[int]) -> None:
        try:
            last = await grant(self._counter, sum(steps), self._session.service.calls)
        except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
            if isinstance(error, IdOverflowError) and len(steps) > 1:
                for offset, step in enumerate(steps):  # there is room for the first ones perhaps
                    await self._make(replies, at + offset, [step])
            else:
                self._refuse(replies, at, steps, error)
        else:
            self._answer(replies, at, last, steps)

    def _joined(self) -> list[list[int]]:
        """Return the steps, so many together as one call may ask for."""
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
        """Count them by command and status."""
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
    """Make the additions to all counters, and forget them."""
    waiting = [each for each in added.values() if not each.settle_nowait(replies)]
    added.clear()
    for start in range(0, len(waiting), MOST_TOGETHER):
        together = [each.settle(replies) for each in waiting[start : start + MOST_TOGETHER]]
        yield together[0] if len(together) == 1 else asyncio.gather(*together)


class RespProtocol(asyncio.Protocol):
    """One connection.

    Attributes:
        session: what the client has said about itself.
        transport: the connection's; None once it has ended.
        unread: an object that stays the same while the client reads too slowly; None if it does
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
            commands: by name, in capitals.
            connections: the open connections of the process, which it enters and leaves.
            clock: tells when a token expires, and when a command takes too long to arrive.
        """
        self.session = Session(service, clock)
        self._connections: set[Any] = set() if connections is None else connections
        self._commands = commands
        self._reader = Commands(most=service.limits.body)
        self.transport: Any = None
        self._loop: Any = None
        self._task: asyncio.Task[None] | None = None
        self.unread: asyncio.Future[None] | None = None
        self._late: asyncio.Task[None] | None = None  # ends a client that ends no command
        self._is_ending = False
        self._is_noted = False  # whether it holds bytes of what is not whole

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
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
            self.transport.pause_reading()  # until what has arrived is served

    def eof_received(self) -> bool:
        """Answer what has arrived: who sends no more may still read; with TLS it cannot."""
        self._is_ending = True
        is_encrypted = self.transport.get_extra_info("sslcontext") is not None
        return self._task is not None and not is_encrypted

    def pause_writing(self) -> None:
        """Serve nothing more until the client reads its replies."""
        if self.unread is None:
            self.unread = self._loop.create_future()

    def resume_writing(self) -> None:
        """Go on."""
        writable, self.unread = self.unread, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; the ids of a call to the store that is under way are a gap."""
        del exc
        self._connections.discard(self)
        self.session.service.unfinished.note(self, 0)
        self.transport = None
        self._drop_timer()
        self.resume_writing()

    def abort(self) -> None:
        """End at once; what it holds goes now, for the loop may tell its end late."""
        if self.transport is not None:
            reset(self.transport)
            self._reader = Commands(most=0)

    def shutdown(self) -> None:
        """Close the connection after the replies to what has arrived."""
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
            logger.exception("a connection of RESP has failed")
            if self.transport is not None:
                self.transport.abort()
        finally:
            self._task = None

    def _rest(self) -> None:
        """Wait for more, or end."""
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
            if command is words and additions is not None:  # once more the same
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
        """Add to what is added to a counter; return that, and how many ids."""
        session = self.session
        try:
            counter, step = run.read(session, command[1:])
        except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
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
        # Each command counts if there is a quota, so that the next one is read, too.
        return (None if access is not None and access.is_counted else additions), step

    def _run(self, run: Command | None, command: list[bytes], replies: list[bytes]) -> Work:
        session = self.session
        try:
            if run is None:
                name = command[0][:64].decode("ascii", "backslashreplace")
                raise RespError(f"ERR unknown command {name!r}")  # noqa: TRY301 - as any other
            answer = run(session, command[1:])
            if not isawaitable(answer):
                replies.append(encoded(answer, protocol=session.protocol))
                return
        except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
            replies.append(encoded(error_of(error)))
            return
        yield self._await(answer, replies)

    async def _await(self, answer: Awaitable[object], replies: list[bytes]) -> None:
        try:
            replies.append(encoded(await answer, protocol=self.session.protocol))
        except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
            replies.append(encoded(error_of(error)))

    def _flush(self, replies: list[bytes]) -> Work:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"".join(replies))
        replies.clear()
        if self.unread is not None:
            yield self.unread
