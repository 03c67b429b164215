"""The server's store for Python clients: counters and machine ids, over one small protocol.

``POST /v1/store/{op}`` takes the arguments as JSON, as does the RESP command ``AIOCOSID op json``.
The client is `aiocosid.stores.remote`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ..abc import MAX_ID, Machine, MachineMarker
from ..errors import (
    CosIdError,
    CounterMissingError,
    InvalidArgumentError,
    UnsupportedByStoreError,
)
from ..machine.operations import ReleaseOperation, RenewOperation, TakeOperation
from ..stores.base import BackendStore, backend_of
from ..stores.counters import CounterDistributor
from ..stores.wire import LABEL, as_fault, as_values, block_json, values_json
from . import _machines
from ._http import access_of, answer_of, body_of
from ._problems import Problem, problem_of
from ._ranges import next_block
from ._resp import RespError
from ._routes import HttpOperation, as_json
from ._service import has_answered
from ._span_store import SpanDistributor
from ._tokens import TokenScope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ..abc import IdSegmentDistributor, Store
    from ..machine.operations import Renewed, Took
    from ..stores.backend import Backend
    from ._http import HttpAnswer
    from ._resp import Session
    from ._routes import HttpCall
    from ._service import Service
    from ._tokens import Access

    Op = Callable[["_Asked"], Awaitable[dict[str, Any]]]

__all__ = ("OPERATIONS", "command", "dispatch")

O = TypeVar("O", TakeOperation, RenewOperation, ReleaseOperation)  # noqa: E741 - an operation
L = TypeVar("L", Machine, MachineMarker)

MOST_BYTES: Final = 1 << 16
"""Maximum bytes of a body."""


async def dispatch(service: Service, access: Access, op: str, args: object) -> dict[str, Any]:
    """Serve one call, and return a JSON object.

    Args:
        service: the server.
        access: what the caller may do.
        op: the operation.
        args: its arguments.

    Raises:
        Problem: the caller may not do this, there is no such operation, or the server is draining.
        CosIdError: as for the store.
    """
    serve = _OPS.get(op)
    if serve is None:
        raise Problem(HTTPStatus.NOT_FOUND, "unknown-operation", "the server has no such operation")
    if service.is_draining:
        detail = "the server is about to stop; ask another one"
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "draining", detail, retry_after=1.0)
    if type(args) is not dict:
        raise InvalidArgumentError("arguments", "...", "must be an object")
    return await serve(_Asked(service, access, cast("dict[str, Any]", args)))


@dataclass(frozen=True, slots=True)
class _Asked:
    """One call, and the access of its caller."""

    service: Service
    access: Access
    args: Mapping[str, Any]

    def whole(self, name: str, least: int, most: int = MAX_ID) -> int:
        value = self.args.get(name)
        if type(value) is not int or not least <= value <= most:
            raise InvalidArgumentError(name, value, f"must be an integer from {least} to {most}")
        return value

    def text(self, name: str) -> str:
        value = self.args.get(name)
        if type(value) is not str:
            raise InvalidArgumentError(name, value, "must be a string")
        return value

    def check(self, wanted: TokenScope, name: str = "") -> None:
        self.service.check(self.access, wanted, name)

    def check_reader(self) -> None:
        """Raise unless the caller may read something; it is shown only what it may read."""
        token = self.access.token
        if token is not None and TokenScope.READ not in token.scopes:
            raise Problem(HTTPStatus.FORBIDDEN, "not-allowed", "this token does not allow 'read'")

    def note(self, what: str) -> None:
        self.service.note(self.access, what)

    def counter(self, wanted: TokenScope) -> tuple[str, IdSegmentDistributor, Backend | None]:
        """Return a counter's ``{namespace}.{name}``, if the caller may use it, and the counter.

        The third value is the counter's backend; None if its distributor does more than add.
        """
        full = self.text("name")
        # A namespace may begin with a dot; however the name is split, the counter is the same.
        dot = full.find(".", 1)
        if not 0 < dot < len(full) - 1:
            raise InvalidArgumentError("name", full, "must be {namespace}.{name}")
        self.check(wanted, full)
        found = self.service.counter(full[dot + 1 :], namespace=full[:dot])
        is_plain = type(found) is CounterDistributor
        return full, found, _plain(self.service.store) if is_plain else None


async def _create_schema(asked: _Asked) -> dict[str, Any]:
    asked.check(TokenScope.ADMIN)
    asked.note("create the store's tables")
    given = {name: asked.args.get(name) is True for name in ("disposable", "after_loss")}
    backend = _plain(asked.service.store)
    if backend is None:
        await asked.service.store.create_schema(**given)
        return {"is_disposable": False}
    return {"is_disposable": await backend.create_schema(**given)}


def _plain(store: Store) -> Backend | None:
    """Return the backend of a store on one server; None for a store over other stores."""
    if isinstance(store, BackendStore):
        return backend_of(cast("BackendStore[Backend]", store))
    return None


# Counters.


async def _add(asked: _Asked) -> dict[str, Any]:
    service = asked.service
    full, counter, backend = asked.counter(TokenScope.SEGMENTS)
    first = None if asked.args.get("first") is None else asked.whole("first", 0)
    by = asked.whole("by", 1 if first is None else 0, service.limits.step)
    if by:
        service.quotas.charge(asked.access, full, by)
    if backend is not None and first is not None and not by:
        return {"max_id": await backend.begin(full, first)}
    if backend is not None:
        return {"max_id": await backend.add(full, by, first=first)}
    if counter.stride != 1:
        remedy = "take one id at a time"
        raise UnsupportedByStoreError(LABEL, "its store grants no contiguous ranges", remedy=remedy)
    if first is not None and first > by:  # a new counter begins at the caller's offset
        where = {"namespace": counter.namespace, "name": counter.name}
        counter = service.counter(**where, offset=first - by)
    if first is None:
        await _check_known(counter, full)
    return {"max_id": await counter.next_max_id(by)}


async def _check_known(counter: IdSegmentDistributor, full: str) -> None:
    """Raise if a counter is missing that, according to the caller, has answered before.

    A new counter would begin below the ids that were issued.  This process cannot know, because it
    may have been started after that answer.

    Raises:
        CounterMissingError: the counter is missing.
    """
    is_in_hand = isinstance(counter, SpanDistributor) and counter.is_in_hand
    if is_in_hand or has_answered(counter):
        return
    with suppress(UnsupportedByStoreError):
        if await counter.peek() is None:
            raise CounterMissingError(LABEL, counter=full)


async def _raise_to(asked: _Asked) -> dict[str, Any]:
    full, counter, backend = asked.counter(TokenScope.ADMIN)
    above, create = asked.whole("above", 0), asked.args.get("create") is True
    asked.note(f"raise {full!r} to {above}")
    if backend is not None:
        raised = await backend.raise_to(full, above, create=create)
    else:
        where = {"namespace": counter.namespace, "name": counter.name}
        raised = await asked.service.store.set_floor(**where, above=above, create=create)
    return {"max_id": None if raised is None else raised.last_max_id}


async def _peek(asked: _Asked) -> dict[str, Any]:
    full, counter, backend = asked.counter(TokenScope.READ)
    return {"max_id": await (counter.peek() if backend is None else backend.peek(full))}


async def _counters(asked: _Asked) -> dict[str, Any]:
    asked.check_reader()
    prefix = asked.text("prefix").removesuffix(".")
    found = await asked.service.store.counters(namespace=prefix or None)
    return {
        "counters": [
            [each.namespaced_name, each.last_max_id]
            for each in found
            if asked.access.allows(TokenScope.READ, each.namespaced_name)
        ]
    }


# Machine ids: holders' operations, which are decided here by the rules, and operators' commands.


def _operation(kind: type[O], serve: Callable[..., Awaitable[Took | Renewed | None]]) -> Op:
    """Return a function that serves a holder's operation."""

    async def served(asked: _Asked) -> dict[str, Any]:
        namespace = asked.text("namespace")
        asked.check(TokenScope.MACHINES, namespace)
        try:
            operation = as_values(kind, asked.args.get("asked"))
        except ValueError:
            raise InvalidArgumentError("asked", "...", "must fit the operation") from None
        done = await serve(asked.service, asked.access, namespace, operation)
        return {} if done is None else {"answer": values_json(done)}

    return served


def _listing(each_of: Callable[[Store], Callable[..., Awaitable[Sequence[L]]]]) -> Op:
    """Return a function that lists something of the namespaces that the caller may read."""

    async def served(asked: _Asked) -> dict[str, Any]:
        access = asked.access
        namespace = None if asked.args.get("namespace") is None else asked.text("namespace")
        if namespace is None:
            asked.check_reader()
        elif not access.allows(TokenScope.ADMIN, namespace):
            asked.check(TokenScope.READ, namespace)
        return {
            "answer": [
                values_json(each)
                for each in await each_of(asked.service.store)(namespace=namespace)
                if namespace is not None or access.allows(TokenScope.READ, each.namespace)
            ]
        }

    return served


def _command(name: str, what: str, *given: str) -> Op:
    """Return a function that serves an operator's command: a store method with some arguments."""

    async def served(asked: _Asked) -> dict[str, Any]:
        of = {"namespace": asked.text("namespace")} if "namespace" in given else {}
        asked.check(TokenScope.ADMIN, of.get("namespace", ""))
        asked.note(" ".join((what, *map(repr, of.values()))))
        others = {each: asked.args[each] for each in given if each in asked.args and each not in of}
        found = await getattr(asked.service.store, name)(**of, **others)
        if isinstance(found, MachineMarker):
            found = [values_json(found)]
        return {} if found is None else {"answer": found}

    return served


async def _evict_machine(asked: _Asked) -> dict[str, Any]:
    where, held = await _holders(asked)
    if held == asked.args.get("holders"):  # otherwise it has already been done
        asked.note(f"take machine id {where['machine_id']} of {where['namespace']!r}")
        await asked.service.store.evict_machine(**where)
    return {}


async def _machine_holders(asked: _Asked) -> dict[str, Any]:
    return {"answer": (await _holders(asked))[1]}


async def _holders(asked: _Asked) -> tuple[dict[str, Any], list[str]]:
    namespace, number = asked.text("namespace"), asked.whole("machine_id", 0, 2**31 - 1)
    asked.check(TokenScope.ADMIN, namespace)
    found = await asked.service.store.machines(namespace=namespace)
    held = [each.instance_id for each in found if each.machine_id == number and each.instance_id]
    return {"namespace": namespace, "machine_id": number}, held


async def _repair_machines(asked: _Asked) -> dict[str, Any]:
    found = await _machines.repair(asked.service, asked.access, asked.text("namespace"))
    return {"answer": [values_json(each) for each in found]}


async def _machine_bits(asked: _Asked) -> dict[str, Any]:
    namespace = asked.text("namespace")
    if not any(
        asked.access.allows(wanted, namespace) for wanted in (TokenScope.READ, TokenScope.ADMIN)
    ):
        asked.check(TokenScope.MACHINES, namespace)
    return {"answer": await asked.service.store.machine_bits(namespace=namespace) or 0}


async def _is_initialized(asked: _Asked) -> dict[str, Any]:
    token = asked.access.token
    if token is None or TokenScope.ADMIN not in token.scopes:
        asked.check_reader()
    return {"answer": await asked.service.store.is_initialized()}


# Generators.


async def _take(asked: _Asked) -> dict[str, Any]:
    service, name = asked.service, asked.text("name")
    count = asked.whole("count", 1, service.limits.ids)
    asked.check(TokenScope.IDS, name)
    generator = await service.generator(name)
    service.quotas.charge(asked.access, name, count)
    return block_json(await next_block(generator, count))


_OPS: Final[dict[str, Op]] = {
    "create_schema": _create_schema,
    "add": _add,
    "raise_to": _raise_to,
    "peek": _peek,
    "counters": _counters,
    "take_machine": _operation(TakeOperation, _machines.take),
    "renew_machine": _operation(RenewOperation, _machines.renew),
    "release_machine": _operation(ReleaseOperation, _machines.release),
    "machines": _listing(lambda store: store.machines),
    "machine_markers": _listing(lambda store: store.machine_markers),
    "machine_holders": _machine_holders,
    "evict_machine": _evict_machine,
    "repair_machines": _repair_machines,
    "raise_machine_fence": _command(
        "raise_machine_fence", "raise a machine id of", "namespace", "machine_id", "above_ms"
    ),
    "machine_bits": _machine_bits,
    "set_machine_bits": _command(
        "set_machine_bits", "change the width of", "namespace", "bits", "region", "region_bits"
    ),
    "is_initialized": _is_initialized,
    "initialize": _command(
        "initialize", "initialise the store", "confirm_no_holders", "after_loss"
    ),
    "forget_namespace": _command("forget_namespace", "forget namespace", "namespace"),
    "initialize_namespace": _command(
        "initialize_namespace",
        "initialise the machine ids of",
        "namespace",
        "confirm_no_holders",
        "safe_guard",
    ),
    "take": _take,
}


# The two protocols.


def _fault_of(error: Problem | CosIdError) -> tuple[Problem, dict[str, Any]]:
    if isinstance(error, CosIdError):
        return problem_of(error), as_fault(error)
    return error, {"kind": _KINDS.get(error.status, "StoreError"), "facts": {"reason": str(error)}}


_KINDS: Final = {
    401: "StoreAuthenticationError",
    403: "StoreAuthenticationError",
    429: "StoreUnavailableError",
    501: "UnsupportedByStoreError",
    503: "StoreUnavailableError",
}


async def _over_http(call: HttpCall) -> HttpAnswer:
    try:
        access = access_of(call.service, call.scope)
        args = _parsed(await body_of(call.scope, call.receive, MOST_BYTES))
        return as_json(await dispatch(call.service, access, call.path["op"], args))
    except (Problem, CosIdError) as error:
        problem, fault = _fault_of(error)
        return answer_of(problem, fault=fault)


OPERATIONS: Final = (HttpOperation("POST", "/v1/store/{op}", _over_http, is_public=True),)


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidArgumentError("body", "...", "must be JSON") from None


async def command(session: Session, words: list[bytes]) -> object:
    """Serve ``AIOCOSID op json`` of RESP; the answer is JSON, with the fault if there is one.

    Raises:
        RespError: the connection has not shown its token, or the words are different.
    """
    if session.access is None:
        raise RespError("NOAUTH Authentication required.")
    if len(words) != 2:  # noqa: PLR2004 - see the message
        raise RespError("ERR wrong number of arguments for 'aiocosid' command")
    op, args = words
    try:
        answer = await dispatch(session.service, session.access, op.decode(), _parsed(args))
    except UnicodeDecodeError:
        raise RespError("ERR unknown operation") from None
    except (Problem, CosIdError) as error:
        answer = {"fault": _fault_of(error)[1]}
    return json.dumps(answer).encode()
