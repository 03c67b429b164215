"""CosId's proxy server 3.2.1: segments, machine ids and ids, for its Java clients and `HttpStore`.

All state is in the store, so clients continue as before after a restart or on another server.

The protocol has an instance, its id and the server's time, and nothing else.  So only time protects
a machine id, as between CosId's own processes: two clients with one instance id get the same
machine id.

Generators come from the configuration, so ``DELETE /actuator/cosid/{name}`` is refused.
"""

from __future__ import annotations

import json
import re
from functools import partial
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from ..._life.clock import SYSTEM_CLOCK
from ...abc import MAX_ID, SHARE, IdGenerator, InstanceId
from ...errors import (
    CosIdError,
    InvalidArgumentError,
    MachineBitsMismatchError,
    MachineIdLostError,
    MachineIdOverflowError,
)
from .._http import JSON, TEXT, HttpAnswer, parts_of, query_of
from .._instances import UNKNOWN, InstanceMachines
from .._problems import Problem, problem_of
from .._service import COSID_STEP
from .._tokens import TokenScope
from ._cosid_statistics import TEXT as RADIX62
from ._cosid_statistics import actuator_tree
from ._endpoint import Endpoint, gate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope

    from .._service import Service
    from .._tokens import Access

__all__ = ("routes",)

_OVERFLOW: Final = "M-01"
_NO_STATE: Final = "M-02"
_LOST: Final = "M-03"
_FAILED: Final = "500"
_INVALID: Final = "400"

_PUBLIC: Final = "public"
"""The owner of the machine ids of clients that show no token."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)

_NUMBER: Final = r"[-+]?[0-9]{1,19}"
_DURATION: Final = re.compile(
    rf"([-+])?P(?=.)(?:({_NUMBER})D)?"
    rf"(T(?=[-+0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:([-+]?[0-9]{{1,19}}(?:\.[0-9]{{0,9}})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
"""The format of Java's ``Duration.parse``."""


def routes(service: Service, *, public: bool = False, prefix: str = "") -> Sequence[BaseRoute]:
    """Return the routes, the busiest first.

    Args:
        service: the server.
        public: whether clients need no token; CosId's clients have none.
        prefix: the prefix of each path.
    """
    proxy = _Proxy(service, public=public, prefix=prefix)
    paths = {
        "/segments/{rest:path}": proxy.segments,
        "/machines/{rest:path}": proxy.machines,
        "/ids/{rest:path}": proxy.ids,
        "/ids": proxy.ids,
        "/actuator/{rest:path}": proxy.actuator,
    }
    return [Route(f"{prefix}{path}", Endpoint(serve, _failed)) for path, serve in paths.items()]


class _RefusedError(Problem):
    """An error with CosId's body.

    Attributes:
        code: CosId's error code.
        errors: the parameters that are wrong.
    """

    def __init__(
        self,
        code: str,
        msg: str | None,
        errors: Sequence[Mapping[str, str]] = (),
        *,
        status: int = HTTPStatus.BAD_REQUEST,
    ) -> None:
        super().__init__(status, "cosid", msg or "")
        self.code, self.msg, self.errors = code, msg, list(errors)


def _failed(_scope: Scope, error: Problem | CosIdError) -> HttpAnswer:
    found = error if isinstance(error, _RefusedError) else _refusal(error)
    facts = {"code": found.code, "msg": found.msg, "errors": found.errors}
    return HttpAnswer(_compact(facts), status=found.status, headers=found.headers)


def _refusal(error: Problem | CosIdError) -> _RefusedError:
    if isinstance(error, Problem):
        found = _RefusedError(str(int(error.status)), error.detail, status=error.status)
        found.headers = error.headers
        return found
    if isinstance(error, InvalidArgumentError | MachineBitsMismatchError):
        return _RefusedError(_FAILED, str(error))
    # The message of a store's error is not shown, because it may name hosts and users.
    said = problem_of(error).detail or type(error).__name__
    return _RefusedError(_FAILED, said, status=HTTPStatus.INTERNAL_SERVER_ERROR)


def _compact(facts: object) -> bytes:
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace")


def _no_path() -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, "no-path", "no such path")


class _Proxy:
    """The operations of the controllers of CosId's proxy."""

    def __init__(self, service: Service, *, public: bool, prefix: str) -> None:
        self._service, self._access = service, gate(service, public=public)
        self._parts: Callable[[Scope], list[str]] = partial(parts_of, prefix=prefix)
        self._machines = InstanceMachines(service, owner=_PUBLIC if public else "")

    # Segments.

    async def segments(self, scope: Scope, _receive: Receive) -> HttpAnswer:
        """``POST /segments/distributor/{ns}/{name}``, ``PATCH /segments/{ns}/{name}``."""
        query = query_of(scope)
        match scope["method"], self._parts(scope):
            case "PATCH", [_, namespace, name]:
                access = self._check(scope, TokenScope.SEGMENTS, f"{namespace}.{name}")
                max_id = await self._service.next_max_id(
                    name,
                    namespace=namespace,
                    step=_step(query),
                    access=access,
                    at_most=COSID_STEP,
                )
                return HttpAnswer(b"%d" % max_id)
            case "POST", [_, "distributor", namespace, name]:
                self._check(scope, TokenScope.SEGMENTS, f"{namespace}.{name}")
                offset = _integer(query, "offset")
                _step(query)
                if offset < 0:
                    raise _RefusedError(_FAILED, f"offset:[{offset}] must be greater than -1!")
                await self._service.create_counter(name, namespace=namespace, offset=offset)
                return HttpAnswer(b"")
            case _:
                raise _no_path()

    # Machine ids.

    async def machines(self, scope: Scope, _receive: Receive) -> HttpAnswer:
        """``POST``, ``PATCH`` and ``DELETE /machines/{ns}``: take, renew, release."""
        parts = self._parts(scope)
        if len(parts) != 2:  # noqa: PLR2004 - machines and a namespace
            raise _no_path()
        namespace, query = parts[1], query_of(scope)
        act: dict[str, Callable[..., Awaitable[bytes]]] = {
            "POST": self._distribute,
            "PATCH": self._guard,
            "DELETE": self._revert,
        }
        if scope["method"] not in act:
            raise _no_path()
        self._check(scope, TokenScope.MACHINES, namespace)
        access, who = self._access(scope), _instance(query)
        try:
            return HttpAnswer(await act[scope["method"]](access, namespace, who, query))
        except MachineIdLostError as error:
            state = f"MachineState{{machineId={error.machine_id}}}"
            said = f"The machine id[{state}] bound to the instance[{_shown(who)}]@[{namespace}]"
            raise _RefusedError(_LOST, f"{said} has been lost!.") from None
        except Problem as error:
            if error.kind != UNKNOWN:
                raise
            said = f"Not found the MachineState of instance[{_shown(who)}]@[{namespace}]!"
            raise _RefusedError(_NO_STATE, said) from None

    async def _distribute(
        self, access: Access, namespace: str, who: InstanceId, query: Mapping[str, str]
    ) -> bytes:
        bits, safe_guard = _integer(query, "machineBit"), _safe_guard(query)
        if bits <= 0:
            raise _RefusedError(_FAILED, f"machineBit:[{bits}] must be greater than 0!")
        try:
            grant = await self._machines.take(
                access, namespace, who, bits=bits, safe_guard=safe_guard
            )
        except MachineIdOverflowError:
            said = f"distribution failed - totalMachineIds:[{1 << bits}]"
            raise _RefusedError(_OVERFLOW, f"InstanceId:[{_shown(who)}] - {said}") from None
        facts = {"machineId": grant.machine_id, "lastTimeStamp": SYSTEM_CLOCK.now_ms()}
        return _compact(facts)

    async def _guard(
        self, access: Access, namespace: str, who: InstanceId, query: Mapping[str, str]
    ) -> bytes:
        await self._machines.renew(access, namespace, who, safe_guard=_safe_guard(query))
        return b""

    async def _revert(
        self, access: Access, namespace: str, who: InstanceId, _query: Mapping[str, str]
    ) -> bytes:
        await self._machines.release(access, namespace, who)
        return b""

    # Ids.

    async def ids(self, scope: Scope, _receive: Receive) -> HttpAnswer:
        """``GET /ids[/{name}]``: a number; ``GET /ids/as-string[/{name}]``: text."""
        match scope["method"], self._parts(scope):
            case "GET", ["ids", "as-string", *names]:
                is_text = True
            case "GET", ["ids", *names]:
                is_text = False
            case _:
                raise _no_path()
        return await self._id(scope, names, is_text=is_text)

    async def _id(self, scope: Scope, names: Sequence[str], *, is_text: bool) -> HttpAnswer:
        name = _only(names)
        access = self._check(scope, TokenScope.IDS, name)
        try:
            generator = await self._service.generator(name)
        except Problem as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise _not_found(name) from None
            raise
        if not is_text and not isinstance(generator, IdGenerator):
            raise _RefusedError(_FAILED, f"the ids of [{name}] are text")
        self._service.quotas.charge(access, name)
        new_id = await generator.next_id()
        if is_text and isinstance(new_id, int):
            new_id = RADIX62.as_str(new_id)
        return HttpAnswer(str(new_id).encode(), TEXT if is_text else JSON)

    # Spring's actuator.

    async def actuator(self, scope: Scope, _receive: Receive) -> HttpAnswer:
        """``/actuator/``: health, statistics, and an id of a generator."""
        match scope["method"], self._parts(scope):
            case "GET", ["actuator", "health"]:
                return self._health()
            case "GET", ["actuator", "cosid", *names]:
                return self._stat(scope, names)
            case "DELETE", ["actuator", "cosid", _]:
                self._check(scope, TokenScope.ADMIN, "")
                raise _RefusedError(_FAILED, "the generators of this server are configured")
            case "GET", ["actuator", "cosidGenerator", *names]:
                return await self._id(scope, names, is_text=False)
            case "GET", ["actuator", "cosidStringGenerator", *names]:
                return await self._id(scope, names, is_text=True)
            case _:
                raise _no_path()

    def _health(self) -> HttpAnswer:
        if self._service.is_draining:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            return HttpAnswer(b'{"status":"OUT_OF_SERVICE"}', status=status)
        # CosId's clients ask for segments and machine ids, each of which is a call to the store.
        if self._service.pulse.is_cut_off or not self._service.condition.is_ready:
            return HttpAnswer(b'{"status":"DOWN"}', status=HTTPStatus.SERVICE_UNAVAILABLE)
        return HttpAnswer(b'{"status":"UP"}')

    def _stat(self, scope: Scope, names: Sequence[str]) -> HttpAnswer:
        """Return the statistics of all generators by name, or of one."""
        if not names:
            self._check(scope, TokenScope.READ, "")
            provider = self._service.provider
            trees = {each: actuator_tree(provider[each].statistics()) for each in provider}
            return HttpAnswer(_compact(trees))
        name = _only(names)
        self._check(scope, TokenScope.READ, name)
        try:
            found = self._service.provider[name]
        except KeyError:
            raise _not_found(name) from None
        return HttpAnswer(_compact(actuator_tree(found.statistics())))

    def _check(self, scope: Scope, wanted: TokenScope, name: str) -> Access:
        access = self._access(scope)
        self._service.check(access, wanted, name)
        return access


def _only(names: Sequence[str]) -> str:
    """Return the name in a path, or the shared generator's if there is none."""
    if len(names) > 1 or "" in names:
        raise _no_path()
    return names[0] if names else SHARE


def _not_found(name: str) -> _RefusedError:
    return _RefusedError(_FAILED, f"Not found ID generator named:[{name}]!")


def _shown(who: InstanceId) -> str:
    return f"InstanceId{{instanceId={who.text}, stable={str(who.stable).lower()}}}"


def _invalid(field: str, msg: str) -> _RefusedError:
    return _RefusedError(_INVALID, None, [{"field": field, "msg": msg}])


def _integer(query: Mapping[str, str], field: str) -> int:
    text = query.get(field, "")
    if not _INTEGER.fullmatch(text) or not -MAX_ID - 1 <= int(text) <= MAX_ID:
        raise _invalid(field, "must be a number")
    return int(text)


def _step(query: Mapping[str, str]) -> int:
    step = _integer(query, "step")
    if step <= 0:
        raise _RefusedError(_FAILED, f"step:[{step}] must be greater than 0!")
    return step


def _instance(query: Mapping[str, str]) -> InstanceId:
    if "instanceId" not in query:
        raise _invalid("instanceId", "must not be null")
    stable = query.get("stable", "").lower()
    if stable not in {"true", "false"}:
        raise _invalid("stable", "must be true or false")
    return InstanceId(query["instanceId"], stable == "true")


def _safe_guard(query: Mapping[str, str]) -> float:
    """Return the safe guard in seconds; inf for CosId's ``FOREVER``, and for longer durations."""
    match = _DURATION.fullmatch(query.get("safeGuardDuration", ""))
    if match is None:
        raise _invalid("safeGuardDuration", "must be a duration such as PT5M")
    sign, days, _, hours, minutes, seconds = match.groups()
    whole, _, part = (seconds or "0").partition(".")
    ms = (int(days or 0) * 24 + int(hours or 0)) * 3_600_000 + int(minutes or 0) * 60_000
    fraction = int(f"{part:0<3}"[:3])
    ms += int(whole) * 1000 + (-fraction if whole.startswith("-") else fraction)
    ms = -ms if sign == "-" else ms
    if ms <= 0:
        raise _invalid("safeGuardDuration", "must be greater than 0")
    return inf if ms >= MAX_ID else ms / 1000
