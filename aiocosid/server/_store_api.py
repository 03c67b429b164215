"""The server's store for its clients in Python: counters and machine ids, by one small protocol.

``POST /v1/store/{op}`` takes the arguments as JSON, and so does ``AIOCOSID op json`` of RESP.  The
client is `aiocosid.stores.remote`.
"""

from __future__ import annotations

import json
from contextlib import suppress
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
from ..stores.wire import LABEL, as_fault, as_values, ranges_json, values_json
from . import _machines
from ._http import access_of, answer_of, body_of
from ._problems import Problem, problem_of
from ._ranges import next_ranges
from ._resp import RespError
from ._routes import Operation, as_json
from ._service import has_answered
from ._span_store import SpanDistributor
from ._tokens import Verb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ..abc import IdSegmentDistributor, Store
    from ..machine.operations import Renewed, Took
    from ..stores.backend import Backend
    from ._http import HttpAnswer
    from ._resp import Session
    from ._routes import Call
    from ._service import Service
    from ._tokens import Access

    Op = Callable[[Service, Access, Mapping[str, Any]], Awaitable[dict[str, Any]]]

__all__ = ("OPERATIONS", "command", "dispatch")

O = TypeVar("O", TakeOperation, RenewOperation, ReleaseOperation)  # noqa: E741 - an operation
L = TypeVar("L", Machine, MachineMarker)

MOST_BYTES: Final = 1 << 16
"""Of a body."""


async def dispatch(service: Service, access: Access, op: str, args: object) -> dict[str, Any]:
    """Serve one call, and return an object of JSON.

    Args:
        service: the server.
        access: what the caller may do.
        op: the operation.
        args: its arguments.

    Raises:
        Problem: the caller may not do that, there is no such operation, or the server drains.
        CosIdError: as the store.
    """
    serve = _OPS.get(op)
    if serve is None:
        raise Problem(HTTPStatus.NOT_FOUND, "unknown-operation", "the server has no such operation")
    if service.is_draining:
        detail = "the server is about to stop; ask another one"
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "draining", detail, retry_after=1.0)
    if type(args) is not dict:
        raise InvalidArgumentError("arguments", "...", expected="an object")
    return await serve(service, access, cast("dict[str, Any]", args))


async def _create_schema(
    service: Service, access: Access, args: Mapping[str, Any]
) -> dict[str, Any]:
    service.check(access, Verb.ADMIN)
    service.note(access, "create the store's tables")
    given = {name: args.get(name) is True for name in ("disposable", "after_loss")}
    backend = _plain(service.store)
    if backend is None:
        await service.store.create_schema(**given)
        return {"is_disposable": False}
    return {"is_disposable": await backend.create_schema(**given)}


# Counters.


def _whole(args: Mapping[str, Any], name: str, least: int, most: int = MAX_ID) -> int:
    value = args.get(name)
    if type(value) is not int or not least <= value <= most:
        raise InvalidArgumentError(name, value, expected=f"an integer from {least} to {most}")
    return value


def _text(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if type(value) is not str:
        raise InvalidArgumentError(name, value, expected="a text")
    return value


def _parts(args: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return a counter's ``{namespace}.{name}``, and both parts."""
    name = _text(args, "name")
    # A namespace may begin with a dot; whatever the parts are, the counter is the same.
    dot = name.find(".", 1)
    if not 0 < dot < len(name) - 1:
        raise InvalidArgumentError("name", name, expected="{namespace}.{name}")
    return name, name[:dot], name[dot + 1 :]


def _counter(
    service: Service, access: Access, verb: Verb, args: Mapping[str, Any]
) -> tuple[str, IdSegmentDistributor]:
    full, namespace, name = _parts(args)
    service.check(access, verb, full)
    return full, service.counter(name, namespace=namespace)


def _backend_of(service: Service, counter: IdSegmentDistributor) -> Backend | None:
    """Return the backend that a counter is on; None if its distributor does more than to add."""
    return _plain(service.store) if type(counter) is CounterDistributor else None


async def _add(service: Service, access: Access, args: Mapping[str, Any]) -> dict[str, Any]:
    full, counter = _counter(service, access, Verb.SEGMENTS, args)
    first = None if args.get("first") is None else _whole(args, "first", 0)
    by = _whole(args, "by", 1 if first is None else 0, service.limits.step)
    if by:
        service.quotas.charge(access, full, by)
    backend = _backend_of(service, counter)
    if backend is not None and first is not None and not by:
        return {"max_id": await backend.begin(full, first)}
    if backend is not None:
        return {"max_id": await backend.add(full, by, first=first)}
    if counter.stride != 1:
        remedy = "take one id at a time"
        raise UnsupportedByStoreError(LABEL, "its store grants no contiguous ranges", remedy=remedy)
    if first is not None and first > by:  # a new counter begins with the caller's offset
        where = {"namespace": counter.namespace, "name": counter.name}
        counter = service.counter(**where, offset=first - by)
    if first is None:
        await _check_known(counter, full)
    return {"max_id": await counter.next_max_id(by)}


async def _check_known(counter: IdSegmentDistributor, full: str) -> None:
    """Raise if a counter is gone that has answered the caller before, as it says.

    A new one would begin below the ids that were issued; this process may have been started since.

    Raises:
        CounterMissingError: it is gone.
    """
    is_in_hand = isinstance(counter, SpanDistributor) and counter.is_in_hand
    if is_in_hand or has_answered(counter):
        return
    with suppress(UnsupportedByStoreError):
        if await counter.peek() is None:
            raise CounterMissingError(LABEL, counter=full)


async def _raise_to(service: Service, access: Access, args: Mapping[str, Any]) -> dict[str, Any]:
    full, counter = _counter(service, access, Verb.ADMIN, args)
    above = _whole(args, "above", 0)
    create = args.get("create") is True
    service.note(access, f"raise {full!r} to {above}")
    backend, raised = _backend_of(service, counter), None
    if backend is not None:
        raised = await backend.raise_to(full, above, create=create)
    else:
        where = {"namespace": counter.namespace, "name": counter.name}
        raised = await service.store.set_floor(**where, above=above, create=create)
    return {"max_id": None if raised is None else raised.last_max_id}


async def _peek(service: Service, access: Access, args: Mapping[str, Any]) -> dict[str, Any]:
    full, counter = _counter(service, access, Verb.READ, args)
    backend = _backend_of(service, counter)
    found = await (counter.peek() if backend is None else backend.peek(full))
    return {"max_id": found}


async def _counters(service: Service, access: Access, args: Mapping[str, Any]) -> dict[str, Any]:
    _check_reader(access)
    prefix = _text(args, "prefix").removesuffix(".")
    found = await service.store.counters(namespace=prefix or None)
    return {
        "counters": [
            [each.namespaced_name, each.last_max_id]
            for each in found
            if access.allows(Verb.READ, each.namespaced_name)
        ]
    }


def _check_reader(access: Access) -> None:
    """Raise unless the caller may read anything; it is shown only what it may."""
    if access.token is not None and Verb.READ not in access.token.verbs:
        raise Problem(HTTPStatus.FORBIDDEN, "not-allowed", "this token does not allow 'read'")


# Machine ids: operations, which the rules decide here, and what operators do.


def _plain(store: Store) -> Backend | None:
    """Return the backend of a store on one server; None for a store over stores."""
    return (
        backend_of(cast("BackendStore[Backend]", store))
        if isinstance(store, BackendStore)
        else None
    )


def _operation(kind: type[O], serve: Callable[..., Awaitable[Took | Renewed | None]]) -> Op:
    """Return what serves an operation of a holder."""

    async def served(service: Service, access: Access, args: Mapping[str, Any]) -> dict[str, Any]:
        namespace = _text(args, "namespace")
        service.check(access, Verb.MACHINES, namespace)
        try:
            asked = as_values(kind, args.get("asked"))
        except ValueError:
            raise InvalidArgumentError("asked", "...", expected="what a client sends") from None
        done = await serve(service, access, namespace, asked)
        return {} if done is None else {"answer": values_json(done)}

    return served


def _listing(each_of: Callable[[Store], Callable[..., Awaitable[Sequence[L]]]]) -> Op:
    """Return what lists something of the namespaces that the caller may read."""

    async def served(service: Service, access: Access, args: Mapping[str, Any]) -> dict[str, Any]:
        namespace = None if args.get("namespace") is None else _text(args, "namespace")
        if namespace is None:
            _check_reader(access)
        elif not access.allows(Verb.ADMIN, namespace):
            service.check(access, Verb.READ, namespace)
        found = await each_of(service.store)(namespace=namespace)
        return {
            "answer": [
                values_json(each)
                for each in found
                if namespace is not None or access.allows(Verb.READ, each.namespace)
            ]
        }

    return served


def _command(name: str, what: str, *given: str) -> Op:
    """Return what serves an operator's command: a method of the store, with some arguments."""

    async def served(service: Service, access: Access, args: Mapping[str, Any]) -> dict[str, Any]:
        of = {"namespace": _text(args, "namespace")} if "namespace" in given else {}
        service.check(access, Verb.ADMIN, of.get("namespace", ""))
        service.note(access, " ".join((what, *map(repr, of.values()))))
        found = await getattr(service.store, name)(
            **of, **{each: args[each] for each in given if each in args and each not in of}
        )
        if isinstance(found, MachineMarker):
            found = [values_json(found)]
        return {} if found is None else {"answer": found}

    return served


async def _revert_machine(
    service: Service, access: Access, args: Mapping[str, Any]
) -> dict[str, Any]:
    where, held = await _holders(service, access, args)
    if held == args.get("holders"):  # else it was done already
        service.note(access, f"take machine id {where['machine_id']} of {where['namespace']!r}")
        await service.store.revert_machine(**where)
    return {}


async def _machine_holders(
    service: Service, access: Access, args: Mapping[str, Any]
) -> dict[str, Any]:
    return {"answer": (await _holders(service, access, args))[1]}


async def _holders(
    service: Service, access: Access, args: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    namespace, number = _text(args, "namespace"), _whole(args, "machine_id", 0, 2**31 - 1)
    service.check(access, Verb.ADMIN, namespace)
    found = await service.store.machines(namespace=namespace)
    held = [each.instance_id for each in found if each.machine_id == number and each.instance_id]
    return {"namespace": namespace, "machine_id": number}, held


async def _repair_machines(
    service: Service, access: Access, args: Mapping[str, Any]
) -> dict[str, Any]:
    found = await _machines.repair(service, access, _text(args, "namespace"))
    return {"answer": [values_json(each) for each in found]}


async def _machine_bits(
    service: Service, access: Access, args: Mapping[str, Any]
) -> dict[str, Any]:
    namespace = _text(args, "namespace")
    if not any(access.allows(verb, namespace) for verb in (Verb.READ, Verb.ADMIN)):
        service.check(access, Verb.MACHINES, namespace)
    return {"answer": await service.store.machine_bits(namespace=namespace) or 0}


async def _is_initialized(service: Service, access: Access, _: Mapping[str, Any]) -> dict[str, Any]:
    if access.token is None or Verb.ADMIN not in access.token.verbs:
        _check_reader(access)
    return {"answer": await service.store.is_initialized()}


# Generators.


async def _take(service: Service, access: Access, args: Mapping[str, Any]) -> dict[str, Any]:
    name, count = _text(args, "name"), _whole(args, "count", 1, service.limits.ids)
    service.check(access, Verb.IDS, name)
    generator = await service.generator(name)
    service.quotas.charge(access, name, count)
    return {"ranges": ranges_json(await next_ranges(generator, count))}


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
    "revert_machine": _revert_machine,
    "repair_machines": _repair_machines,
    "raise_machine_mark": _command(
        "raise_machine_mark", "raise a machine id of", "namespace", "machine_id", "above_ms"
    ),
    "machine_bits": _machine_bits,
    "set_machine_bits": _command("set_machine_bits", "change the width of", "namespace", "bits"),
    "is_initialized": _is_initialized,
    "initialize": _command(
        "initialize", "mark the store as initialised", "confirm_no_holders", "after_loss"
    ),
    "forget_namespace": _command("forget_namespace", "stop to miss", "namespace"),
    "mark_machines": _command(
        "mark_machines", "mark the machine ids of", "namespace", "is_new", "safe_guard"
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


async def _over_http(call: Call) -> HttpAnswer:
    try:
        access = access_of(call.service, call.scope)
        args = _parsed(await body_of(call.scope, call.receive, MOST_BYTES))
        return as_json(await dispatch(call.service, access, call.path["op"], args))
    except (Problem, CosIdError) as error:
        problem, fault = _fault_of(error)
        body = json.dumps(json.loads(problem.body()) | {"fault": fault}).encode()
        return answer_of(problem)._replace(body=body)


OPERATIONS: Final = (Operation("POST", "/v1/store/{op}", _over_http, is_public=True),)


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidArgumentError("body", "...", expected="JSON") from None


async def command(session: Session, words: list[bytes]) -> object:
    """Serve ``AIOCOSID op json`` of RESP; the answer is JSON, with the fault if there is one.

    Raises:
        RespError: the connection has not shown its token, or there are other words.
    """
    if session.access is None:
        raise RespError("NOAUTH Authentication required.")
    if len(words) != 2:  # noqa: PLR2004 - said below
        raise RespError("ERR wrong number of arguments for 'aiocosid' command")
    op, args = words
    try:
        answer = await dispatch(session.service, session.access, op.decode(), _parsed(args))
    except UnicodeDecodeError:
        raise RespError("ERR unknown operation") from None
    except (Problem, CosIdError) as error:
        answer = {"fault": _fault_of(error)[1]}
    return json.dumps(answer).encode()
