"""RESP, the protocol of Redis: commands of a connection, in order, and their replies.

Commands that have arrived together are served together: additions to one counter, with no other
command between them, are one addition on the store, and those to different counters run at a time.
No task is made for what is answered without waiting.

Commands are split here and not by hiredis, which parses replies: it allocates what a header
announces, so that 14 bytes cost a blocked event loop of 4 seconds, and a megabyte costs 12 GB.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from inspect import isawaitable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from .._life.clock import SYSTEM_CLOCK
from ..errors import CosIdError, IdOverflowError, WouldBlock
from ._problems import Problem, problem_of
from ._tokens import Access

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..abc import Clock, IdSegmentDistributor
    from ._service import Service

__all__ = (
    "NO_ACCESS",
    "Adder",
    "Command",
    "Commands",
    "RespError",
    "RespProtocol",
    "Session",
    "encoded",
)

logger = logging.getLogger("aiocosid.server")

RESP3: Final = 3

MOST_AT_ONCE: Final = 500
"""Commands that are served before other connections have their turn."""

MOST_BUFFERED: Final = 65_536
"""Bytes of replies that are kept before they are written."""

MOST_TOGETHER: Final = 32
"""Counters that one connection adds to at a time."""

MOST_WORDS: Final = 1024
"""Words of a command."""

MOST_REPEATED: Final = 256
"""Bytes of a command that is remembered, because a pipeline often repeats it."""

LONGEST_HEADER: Final = 32
"""Bytes of a line that announces how many words, or bytes, follow."""

STRANGER_WORDS: Final = 10
STRANGER_BYTES: Final = 16_384
"""What a command may have before its sender has shown a token; as of Redis."""

_ARRAY: Final = ord("*")
_BULK: Final = ord("$")


class RespError(Exception):
    """An error reply: a code in capitals, and a text."""


NO_ACCESS: Final = "NOAUTH Authentication required."

OPEN: Final = frozenset({b"AUTH", b"HELLO", b"QUIT", b"RESET"})
"""Commands of those who have not shown a token."""


def encoded(value: object, *, protocol: int = 2) -> bytes:
    """Return a reply.

    Args:
        value: an integer, bytes, text for a simple string, None, a list, a dict or a `RespError`.
        protocol: 2 or 3.
    """
    if isinstance(value, dict):
        mapping = cast("dict[object, object]", value)
        is_map = protocol == RESP3
        start = b"%%%d\r\n" % len(mapping) if is_map else b"*%d\r\n" % (2 * len(mapping))
        parts = [part for pair in mapping.items() for part in pair]
        return start + b"".join(encoded(part, protocol=protocol) for part in parts)
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return b"*%d\r\n" % len(parts) + b"".join(encoded(p, protocol=protocol) for p in parts)
    return _scalar(value, protocol)


def _scalar(value: object, protocol: int) -> bytes:
    match value:
        case int():
            return b":%d\r\n" % value
        case str():
            return b"+%s\r\n" % _one_line(value)
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(value), value)
        case RespError():
            return b"-%s\r\n" % _one_line(str(value))
        case None:
            return b"_\r\n" if protocol == RESP3 else b"$-1\r\n"
        case _:
            raise TypeError(value)


def _one_line(text: str) -> bytes:
    return text.replace("\r", " ").replace("\n", " ").encode(errors="replace")


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
    )

    _numbers = count(1)

    def __init__(self, service: Service, clock: Clock) -> None:
        self.service = service
        self.clock = clock
        self.number = next(self._numbers)
        self.counters: dict[bytes, IdSegmentDistributor] = {}
        self.is_closing = False
        self.is_trusted = not service.tokens
        self.reset()

    def reset(self) -> None:
        """Forget what the client has said."""
        self.protocol = 2
        self.name = b""
        self.set_access(Access() if self.is_trusted else None)

    def set_access(self, access: Access | None) -> None:
        """Let the client do something else from now on."""
        self.access: Access | None = access
        self.counters.clear()

    def expire(self) -> None:
        """Take the access away if its token has expired."""
        token = self.access and self.access.token
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
    logger.error("a command has failed", exc_info=error)
    return RespError("ERR internal error")


NOT_CONTIGUOUS: Final = encoded(
    RespError("ERR segments of this store are not contiguous; take one id at a time")
)


class Commands:
    """Splits what a client sends into commands: arrays of bulk strings, and nothing else.

    Attributes:
        error: what is wrong with the bytes after the last command; empty if nothing is.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_last",
        "_last_words",
        "_left",
        "_most",
        "_needed",
        "_size",
        "_words",
        "error",
    )

    def __init__(self, *, most: int) -> None:
        """Begin with nothing.

        Args:
            most: bytes of a command.
        """
        self.error = ""
        self._most = most
        self._buffer = b""
        self._at = 0  # of the first byte that has not been split
        self._needed = 0  # length of the buffer below which nothing more can be split
        self._words: list[bytes] = []  # of a command that is not complete
        self._left = 0  # words that it lacks
        self._size = 0  # bytes of it so far
        self._last = b""  # the last command, which a pipeline often repeats
        self._last_words: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        self._buffer = self._buffer[self._at :] + data if self._at < len(self._buffer) else data
        self._needed -= self._at
        self._at = 0

    @property
    def is_partial(self) -> bool:
        """Whether a part of a command has arrived that `take` has not returned."""
        return self._at < len(self._buffer) or self._left > 0

    def take(self, at_most: int, *, is_stranger: bool = False) -> list[list[bytes]]:
        """Return the next commands that are complete; the same list again for one repeated.

        Args:
            at_most: how many.
            is_stranger: whether the sender has shown no token yet; then one at a time.
        """
        at_most = 1 if is_stranger else at_most
        found: list[list[bytes]] = []
        buffer, last = self._buffer, self._last
        while len(found) < at_most and not self.error:
            if not self._left and last and buffer.startswith(last, self._at):
                self._at += len(last)
                found.append(self._last_words)
                continue
            start = self._at if not self._left else -1
            if len(buffer) < self._needed or not self._split(is_stranger=is_stranger):
                break
            words, self._words = self._words, []
            if not words:  # an array without elements, which Redis ignores
                continue
            found.append(words)
            if start >= 0 and self._at - start <= MOST_REPEATED:
                last = self._last = buffer[start : self._at]
                self._last_words = words
        return found

    def _split(self, *, is_stranger: bool) -> bool:
        """Go on with a command; return whether it is complete now."""
        most_words = STRANGER_WORDS if is_stranger else MOST_WORDS
        most = STRANGER_BYTES if is_stranger else self._most
        if not self._left:
            number = self._header(_ARRAY, "multibulk length", most_words)
            if number is None:
                return False
            self._left, self._size = max(0, number), 0
        buffer = self._buffer
        while self._left:
            start = self._at
            size = self._header(_BULK, "bulk length", most - self._size)
            if size is None:
                return False
            if size < 0:
                self.error = "invalid bulk length"
                return False
            stop = self._at + size
            if len(buffer) < stop + 2:
                self._at, self._needed = start, stop + 2
                return False
            if buffer[stop : stop + 2] != b"\r\n":
                self.error = "a bulk string does not end where it should"
                return False
            self._words.append(buffer[self._at : stop])
            self._at = stop + 2
            self._size += self._at - start
            self._left -= 1
        return True

    def _header(self, kind: int, what: str, at_most: int) -> int | None:
        """Return the number of a line; None if it is not there yet, or wrong."""
        buffer, at = self._buffer, self._at
        if at == len(buffer):
            return None
        if buffer[at] != kind:
            self.error = f"expected {chr(kind)!r}, got {chr(buffer[at])!r}"
            return None
        stop = buffer.find(b"\r\n", at, at + LONGEST_HEADER)
        if stop < 0:
            if len(buffer) - at >= LONGEST_HEADER:
                self.error = f"invalid {what}"
            return None
        digits = buffer[at + 1 : stop]
        if not digits.isdigit() and digits != b"-1":
            self.error = f"invalid {what}"
            return None
        number = int(digits)
        if number > at_most:
            self.error = f"invalid {what}"
            return None
        self._at = stop + 2
        return number


Work: TypeAlias = "Generator[Awaitable[Any], Any, None]"
"""Serves commands; yields what has to be awaited, and is sent its result."""


class Additions:
    """Additions to one counter that are made together, by one call to the store if it can be."""

    __slots__ = ("_counter", "_places", "_steps")

    def __init__(self, counter: IdSegmentDistributor) -> None:
        self._counter = counter
        self._places: list[int] = []
        self._steps: list[int] = []

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
            self._answer(replies, 0, self._counter.next_max_id_nowait(total), self._steps)
        except (WouldBlock, IdOverflowError):
            return False
        except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
            self._refuse(replies, 0, self._steps, error)
        return True

    async def settle(self, replies: list[bytes]) -> None:
        """Make them; never raises."""
        at = 0
        for steps in self._joined():
            try:
                last = await self._counter.next_max_id(sum(steps))
            except IdOverflowError as error:  # there is room for the first ones perhaps
                if len(steps) == 1:
                    self._refuse(replies, at, steps, error)
                else:
                    for offset, step in enumerate(steps):
                        await self._settle_one(replies, at + offset, step)
            except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
                self._refuse(replies, at, steps, error)
            else:
                self._answer(replies, at, last, steps)
            at += len(steps)

    async def _settle_one(self, replies: list[bytes], at: int, step: int) -> None:
        try:
            self._answer(replies, at, await self._counter.next_max_id(step), [step])
        except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
            self._refuse(replies, at, [step], error)

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

    def _refuse(
        self, replies: list[bytes], at: int, steps: Sequence[int], error: Exception
    ) -> None:
        reply = encoded(error_of(error))
        for place in self._places[at : at + len(steps)]:
            replies[place] = reply


def _settle(added: dict[IdSegmentDistributor, Additions], replies: list[bytes]) -> Work:
    """Make the additions to all counters, and forget them."""
    if not added:
        return
    waiting = [each for each in added.values() if not each.settle_nowait(replies)]
    added.clear()
    for start in range(0, len(waiting), MOST_TOGETHER):
        together = [each.settle(replies) for each in waiting[start : start + MOST_TOGETHER]]
        yield together[0] if len(together) == 1 else asyncio.gather(*together)


class RespProtocol(asyncio.Protocol):
    """One connection."""

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
        self._session = Session(service, clock)
        self._connections: set[Any] = set() if connections is None else connections
        self._commands = commands
        self._reader = Commands(most=service.limits.body)
        self._transport: Any = None
        self._loop: Any = None
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None  # while the client reads too slowly
        self._late: asyncio.Task[None] | None = None  # ends a client that ends no command
        self._is_ending = False

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._connections.add(self)
        session = self._session
        session.is_trusted = session.service.trusts(transport.get_extra_info("sockname"))
        session.reset()

    def data_received(self, data: bytes) -> None:
        """Serve the commands that are complete."""
        self._reader.feed(data)
        if self._task is None:
            self._begin()
        else:
            self._transport.pause_reading()  # until what has arrived is served

    def pause_writing(self) -> None:
        """Serve nothing more until the client reads its replies."""
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Go on."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; a call to the store that is under way is answered to nobody: a gap."""
        del exc
        self._connections.discard(self)
        self._transport = None
        self._drop_timer()
        self.resume_writing()

    def shutdown(self) -> None:
        """Close the connection after the replies to what has arrived."""
        self._is_ending = True
        if self._task is None and self._transport is not None:
            self._transport.close()

    # Serving.

    def _begin(self) -> None:
        """Serve what can be served without waiting, and the rest in a task."""
        work = self._work()
        try:
            waited = next(work)
        except StopIteration:
            self._rest()
        else:
            self._task = self._loop.create_task(self._go_on(work, waited))

    async def _go_on(self, work: Work, waited: Awaitable[Any]) -> None:
        try:
            while True:
                try:
                    answer = await waited
                except Exception as error:  # noqa: BLE001 - the command's, which is answered
                    waited = work.throw(error)
                else:
                    waited = work.send(answer)
        except StopIteration:
            self._rest()
        finally:
            self._task = None

    def _rest(self) -> None:
        """Wait for more, or end."""
        transport = self._transport
        if transport is None:
            return
        if self._is_ending or self._session.is_closing or self._reader.error:
            transport.close()
            return
        if self._task is not None:
            transport.resume_reading()
        self._drop_timer()
        if self._reader.is_partial:
            self._late = self._loop.create_task(self._lose_patience())

    async def _lose_patience(self) -> None:
        await self._session.clock.sleep(self._session.service.limits.header_timeout)
        if self._transport is not None:
            self._transport.abort()

    def _drop_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _work(self) -> Work:
        session, reader = self._session, self._reader
        served = 0
        while not session.is_closing and self._transport is not None:
            session.expire()
            commands = reader.take(MOST_AT_ONCE, is_stranger=session.access is None)
            if commands:
                yield from self._serve(commands)
            if reader.error:
                self._write([encoded(RespError(f"ERR Protocol error: {reader.error}"))])
            if not commands or reader.error:
                return
            served += len(commands)
            if served >= MOST_AT_ONCE and reader.is_partial:
                served = 0
                yield session.clock.sleep(0)

    def _serve(self, commands: Sequence[list[bytes]]) -> Work:
        session, table = self._session, self._commands
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
            name = command[0].upper()
            run = table.get(name)
            if session.access is None and name not in OPEN:
                run = _no_access
            if isinstance(run, Adder):
                try:
                    counter, step = run.read(session, command[1:])
                except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
                    replies.append(encoded(error_of(error)))
                    continue
                additions = added.get(counter)
                if additions is None:
                    additions = added[counter] = Additions(counter)
                additions.add(len(replies), step)
                replies.append(b"")
                continue
            yield from _settle(added, replies)
            reply = yield from self._run(run, command)
            replies.append(reply)
            buffered += len(reply)
            if session.is_closing:
                break
            if buffered > MOST_BUFFERED:
                yield from self._flush(replies)
                buffered = 0
        yield from _settle(added, replies)
        yield from self._flush(replies)

    def _run(
        self, run: Command | None, command: list[bytes]
    ) -> Generator[Awaitable[Any], Any, bytes]:
        session = self._session
        try:
            if run is None:
                name = command[0][:64].decode("ascii", "backslashreplace")
                raise RespError(f"ERR unknown command {name!r}")  # noqa: TRY301 - as any other
            answer = run(session, command[1:])
            if isawaitable(answer):
                answer = yield answer
            return encoded(answer, protocol=session.protocol)
        except Exception as error:  # noqa: BLE001 - one that is unknown is logged there
            return encoded(error_of(error))

    def _flush(self, replies: list[bytes]) -> Work:
        self._write(replies)
        replies.clear()
        if self._writable is not None:
            yield self._writable

    def _write(self, replies: Sequence[bytes]) -> None:
        if self._transport is not None:
            self._transport.write(b"".join(replies))
