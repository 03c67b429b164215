"""The backend on an aiocosid server: each method is one call to whichever server answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast, overload

from ..._life.clock import SYSTEM_CLOCK
from ...abc import MAX_ID, Counter, Machine, MachineMarker
from ...errors import StoreError, StoreUnavailableError
from ...machine.operations import ReleaseOperation, Renewed, RenewOperation, TakeOperation, Took
from .._connection import fail_if_forked
from ..backend import Backend
from ..wire import LABEL, as_block, as_values, error_of, values_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...segment.blocks import Block
    from .._connection import Connection

Asked: TypeAlias = TakeOperation | RenewOperation | ReleaseOperation
A = TypeVar("A", Took, Renewed)
K = TypeVar("K")
L = TypeVar("L", Machine, MachineMarker)
V = TypeVar("V", Took, Renewed, Machine, MachineMarker)

__all__ = (
    "RemoteBackend",
    "RemoteEndpoint",
    "Servers",
    "UnexpectedAnswerError",
    "answer_of",
)


def answer_of(body: bytes) -> dict[str, Any]:
    """Return a server's answer.

    Raises:
        CosIdError: the error that the server reports.
        StoreError: the answer does not come from an aiocosid server.
    """
    try:
        found = json.loads(body)
        fault = found.get("fault")
        error = None if fault is None else error_of(fault)
    except (AttributeError, ValueError, RecursionError):
        raise UnexpectedAnswerError from None
    if error is not None:
        raise error
    return cast("dict[str, Any]", found)


class UnexpectedAnswerError(StoreError):
    """An answer that no aiocosid server would send."""

    def __init__(self) -> None:
        remedy = "check that it is an aiocosid server, of this version"
        super().__init__(LABEL, "no aiocosid server sends such an answer", remedy=remedy)


class RemoteEndpoint(Protocol):
    """The address of one server."""

    async def exchange(self, op: str, args: bytes, *, seconds: float) -> dict[str, Any]:
        """Send a call once, and return its answer.

        Raises:
            StoreUnavailableError: the server cannot be reached, or did not answer in time; the call
                may have taken effect.
            CosIdError: the server's error.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the connections; running calls fail."""
        raise NotImplementedError

    def silence(self) -> None:
        """Keep the parent's connections from sending anything in a forked child."""
        raise NotImplementedError


class Servers:
    """The servers of one store, and which of them answered last."""

    __slots__ = ("_current", "_endpoints", "_is_closed", "_seconds")

    def __init__(self, endpoints: Sequence[RemoteEndpoint], seconds: float) -> None:
        """Use some servers.

        Args:
            endpoints: at least one.
            seconds: seconds for a call to all servers together.
        """
        self._endpoints, self._seconds = endpoints, seconds
        self._current = 0
        self._is_closed = False

    async def ask(self, op: str, args: bytes) -> dict[str, Any]:
        """Send a call to the server that answered last, then to the others, until one answers.

        A call that a server did not answer may have taken effect there; repeating it on the others
        is safe.  The server may have closed a kept connection, so the first server is asked once
        more at the end, if there is time.
        """
        until = SYSTEM_CLOCK.monotonic() + self._seconds
        first, size, failed = self._current, len(self._endpoints), None
        for attempt in range(size + 1):
            left = until - SYSTEM_CLOCK.monotonic()
            if self._is_closed or left <= 0:
                break
            number = (first + attempt) % size
            share = left / max(1, size - attempt)
            try:
                answer = await self._endpoints[number].exchange(op, args, seconds=share)
            except StoreUnavailableError as error:
                failed = error
            else:
                self._current = number
                return answer
        raise failed or StoreUnavailableError(LABEL, f"no answer within {self._seconds:g} s")

    async def aclose(self) -> None:
        """Close the connections."""
        self._is_closed = True
        for endpoint in self._endpoints:
            await endpoint.aclose()

    def silence(self) -> None:
        """Keep the parent's connections from sending anything in a forked child."""
        for endpoint in self._endpoints:
            endpoint.silence()


class RemoteBackend(Backend):
    """The store of an aiocosid server, through one or several servers."""

    __slots__ = ()

    link: Connection[Servers]

    order_risk = "the store behind the server is not known"
    has_clock = False  # the server's store may have no clock

    async def call(self, op: str, **args: object) -> dict[str, Any]:
        """Call the server.

        Raises:
            StoreUnavailableError: no server can be reached or answers in time; the call may have
                taken effect.
            StoreAuthenticationError: the token is missing, wrong, has expired, or does not allow
                the call.
            StoreError: the server or its store refuses.
            CosIdError: as for the server's store.
            ForkedError: the connections belong to the parent process.
            WrongLoopError: the connections are in use on another event loop.
        """
        with fail_if_forked():
            servers = await self.link.ready()
            return await servers.ask(op, json.dumps(args).encode())

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> bool:
        args = {"disposable": disposable, "after_loss": after_loss}
        return (await self.call("create_schema", **args)).get("is_disposable") is True

    # Counters.

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        return _whole(await self.call("add", name=name, by=by, first=first))

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        answer = await self.call("raise_to", name=name, above=above, create=create)
        if answer.get("max_id") is None:
            return None
        return Counter(namespaced_name=name, last_max_id=_whole(answer))

    async def counters(self, prefix: str) -> Sequence[Counter]:
        answer = await self.call("counters", prefix=prefix)
        try:
            found = [(str(name), int(max_id)) for name, max_id in answer["counters"]]
        except (KeyError, TypeError, ValueError):
            raise UnexpectedAnswerError from None
        return [Counter(namespaced_name=name, last_max_id=max_id) for name, max_id in found]

    async def peek(self, name: str) -> int | None:
        answer = await self.call("peek", name=name)
        return None if answer.get("max_id") is None else _whole(answer)

    # Generators.

    async def take(self, name: str, count: int) -> Block:
        """Reserve ids of one of the server's generators."""
        answer = await self.call("take", name=name, count=count)
        try:
            return as_block(answer, count)
        except ValueError:
            raise UnexpectedAnswerError from None

    # Machine ids.

    @overload
    async def operate(self, op: str, namespace: str, asked: Asked) -> None: ...

    @overload
    async def operate(self, op: str, namespace: str, asked: Asked, kind: type[A]) -> A: ...

    async def operate(
        self, op: str, namespace: str, asked: Asked, kind: type[A] | None = None
    ) -> A | None:
        """Ask the server to run a holder's operation; return its answer, if it has one.

        Args:
            op: the operation's name on the wire.
            namespace: the namespace of the machine ids.
            asked: the operation.
            kind: the answer's class.
        """
        answer = await self.call(op, namespace=namespace, asked=values_json(asked))
        return None if kind is None else _values(kind, answer.get("answer"))

    async def ask_values(self, op: str, kind: type[L], **args: object) -> list[L]:
        """Return the values that the server lists."""
        return [_values(kind, each) for each in await self.rows(op, **args)]

    async def rows(self, op: str, **args: object) -> list[object]:
        """Return the server's answer if it is a list."""
        found: Any = (await self.call(op, **args)).get("answer")
        if type(found) is not list:
            raise UnexpectedAnswerError
        return cast("list[object]", found)

    async def ask_value(self, op: str, kind: type[K], **args: object) -> K:
        """Return the server's answer of a plain type."""
        found: Any = (await self.call(op, **args)).get("answer")
        if type(found) is not kind:
            raise UnexpectedAnswerError
        return found


def _values(kind: type[V], tree: object) -> V:
    try:
        return as_values(kind, tree)
    except ValueError:
        raise UnexpectedAnswerError from None


def _whole(answer: dict[str, Any]) -> int:
    found = answer.get("max_id")
    if type(found) is not int or not -MAX_ID - 1 <= found <= MAX_ID:  # isinstance would accept True
        raise UnexpectedAnswerError
    return found
