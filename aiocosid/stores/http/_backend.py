"""The backend on a CosId proxy, whose machine ids follow the proxy's own rules."""

# ruff: noqa: ARG002 - the protocol cannot express all arguments of the contract

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import isinf
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast
from urllib.parse import quote

from ...abc import MAX_ID, MachineGrant, ServerInfo
from ...abc.checks import check_machine_bits
from ...errors import (
    CorruptCounterError,
    IdOverflowError,
    MachineIdLostError,
    MachineIdOverflowError,
    StoreError,
    UnsupportedByStoreError,
)
from ...errors.base import MOST_SHOWN
from ...machine.distributor import CellMachineIdDistributor
from ...machine.instance_ids import as_instance_id
from .._connection import BorrowedConnection, Connection, translate_errors
from ..backend import Backend
from ..counters import CounterDistributor
from ._session import HttpSession, as_store_error, httpx, make_client, refusal_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from ...abc import Counter
    from .._url import StoreUrl

__all__ = ("HttpMachineIdDistributor",)

MOST_BYTES: Final = 1 << 16  # limit of a body; CosId's bodies have a few dozen


def base_of(url: StoreUrl) -> str:
    """Return ``http://host:8688``, with a path if it has one; without credentials."""
    return f"http{'s' if url.tls else ''}://{url}"


def session_on(client: httpx.AsyncClient, places: Sequence[str] = ("",)) -> HttpSession:
    """Return the session for calls on a client; see `HttpSession`."""
    return HttpSession(client, store=STORE, most_bytes=MOST_BYTES, places=places)


async def connect(url: StoreUrl) -> HttpSession:
    """Return the session for calls on a new client."""
    places = [base_of(replace(url, hosts=(host,))) for host in url.hosts]
    return session_on(make_client(places[0], auth=url.login, verify=url.tls), places)


class UsersClient(BorrowedConnection[HttpSession]):
    """The user's client, which is never closed here."""

    __slots__ = ()

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        self.client = session_on(self.client.client)  # calls on the closed loop never end


class HttpBackend(Backend):
    """Proxies of one store; to inspect or change its data, use the store behind them."""

    __slots__ = ()

    link: Connection[HttpSession]

    order_risk = "the store behind the proxy is not known"

    def __init__(self, connection: Connection[HttpSession], name: str = "") -> None:
        super().__init__(STORE, connection, name=name)

    async def ask(
        self, method: str, path: str, query: Mapping[str, str], *, codes: Sequence[str] = ()
    ) -> Answer:
        """Send one request once, and return its whole answer.

        A cancelled request may continue; its answer is dropped.

        Args:
            method: the HTTP method.
            path: the quoted path.
            query: the query's parameters.
            codes: CosId's error codes that the caller handles.

        Raises:
            StoreUnavailableError: the proxy cannot be reached, does not answer, or fails; the
                request may have taken effect.
            StoreAuthenticationError: a gateway in front of the proxy rejects the credentials.
            StoreError: the proxy refuses, or the server is not a CosId proxy.
            ForkedError: the connections belong to the parent process.
            UnsupportedRuntimeError: the loop is not asyncio's.
        """
        with translate_errors(_meaning, place=self.name):
            answer = Answer(*await (await self.link.ready()).ask(method, path, query))
        if answer.status not in OK and answer.code not in codes:
            raise answer.refusal()
        return answer

    async def ask_server(self) -> ServerInfo:
        """Send a request that changes nothing: any answer shows that the proxy is there."""
        with translate_errors(_meaning, place=self.name):
            await (await self.link.ready()).ask("GET", "/actuator/health")
        return ServerInfo(version="")

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> bool:
        return False  # there is nothing to create

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        answer = await self.ask("PATCH", f"/segments{name}", {"step": str(by)})
        value = answer.value
        if type(value) is not int or value > MAX_ID:  # isinstance would accept True
            raise answer.unexpected("an integer")
        return value

    async def begin(self, name: str, at: int) -> int:
        raise _no_way_to("create a counter alone")

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        raise _no_way_to("raise a counter")

    async def counters(self, prefix: str) -> Sequence[Counter]:
        raise _no_way_to("list counters")

    def _has_no_machine_ids(self) -> UnsupportedByStoreError:
        return _no_way_to("look at machine ids or to change them")


def _no_way_to(do: str) -> UnsupportedByStoreError:
    return UnsupportedByStoreError(
        STORE, f"CosId's protocol has no way to {do}", remedy="use the store behind it"
    )


def path_of(*parts: str) -> str:
    """Return a path of parts with any characters; each part stays a separate part."""
    # Clients and gateways would resolve a part that consists of dots as a relative path.
    steps = {".": "%2E", "..": "%2E%2E"}
    return "".join(f"/{steps.get(part) or quote(part, safe='')}" for part in parts)


class HttpCounter(CounterDistributor):
    """A counter behind a CosId proxy, which its Java clients may use at the same time.

    Each range is one ``PATCH /segments/{namespace}/{name}``, which is sent once: if the answer is
    lost, the range is lost too.  Before the first range a ``POST`` creates the counter, as in
    CosId's client; it changes nothing if the counter exists.

    The proxy does not classify the errors of its store, so `StoreUnavailableError` may mean a
    refusal for any reason.  A counter that is negative, or lower than the step, raises
    `CorruptCounterError`.
    """

    __slots__ = ("_is_created",)

    _backend: HttpBackend

    def __init__(self, backend: HttpBackend, **described: Any) -> None:  # noqa: ANN401 - the class's own options
        """Describe a counter; see `CounterDistributor`."""
        super().__init__(backend, **described)
        self._is_created = False

    async def _grant(self, step: int) -> int:
        if (self._water.baseline() or 0) + step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        path = path_of(self.namespace, self.name)
        if not self._is_created:
            start = {"offset": str(self.offset), "step": str(self.step)}
            await self._backend.ask("POST", f"/segments/distributor{path}", start)
            self._is_created = True
        try:
            max_id = await self._backend.add(path, step, first=None)
        except StoreError:
            # A server before 3.2.1 forgets the counter's name at a restart, and if the server does
            # not answer, sending a POST first costs no range.
            self._is_created = False
            raise
        if max_id < step:
            found = str(max_id - step)
            raise CorruptCounterError(STORE, counter=self.namespaced_name, found=found)
        return max_id


STORE: Final = "cosid proxy"

OK: Final = range(200, 300)
MOVED: Final = range(300, 400)


@dataclass(frozen=True, slots=True)
class Answer:
    """A proxy's answer.

    Attributes:
        status: the HTTP status.
        body: the whole body.
    """

    status: int
    body: bytes

    @property
    def value(self) -> Any:  # noqa: ANN401 - any JSON
        """The parsed body; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def code(self) -> str:
        """The ``code`` of CosId's error; empty if there is none, or if the call succeeded."""
        found = as_object(self.value).get("code")
        return found if isinstance(found, str) and self.status not in OK else ""

    def refusal(self) -> StoreError:
        """Return the error for a refused call, with the class that fits the status."""
        said = [f"HTTP {self.status}, {self.code}" if self.code else f"HTTP {self.status}"]
        said += filter(None, [self._message()])
        if self.status in MOVED:
            said.append("it redirects; give the URL that it leads to")
        return refusal_of(self.status)(STORE, ": ".join(said))

    def _message(self) -> str:
        """Return the message of CosId's error, or nothing: ``msg``, followed by ``errors``."""
        error = as_object(self.value)
        texts: list[Any] = [error.get("msg")]
        if isinstance(error.get("errors"), list):
            fields = map(as_object, cast("list[Any]", error["errors"]))
            texts += [f"{each.get('field')} {each.get('msg')}" for each in fields]
        return "; ".join(text for text in texts if isinstance(text, str))[:MOST_SHOWN]

    def unexpected(self, expected: str) -> StoreError:
        """Return the error for a body that no CosId proxy would send."""
        shown = repr(self.body[:MOST_SHOWN].decode(errors="replace"))
        reason = f"it answered {shown}, not {expected}"
        return StoreError(STORE, reason, remedy="check that the URL leads to a CosId proxy")


def as_object(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _meaning(exc: Exception) -> StoreError | None:
    """Return the aiocosid error for a driver's error; None for any other."""
    if isinstance(exc, httpx.HTTPStatusError):  # raised by a hook of the user's client
        return Answer(exc.response.status_code, b"").refusal()
    remedy = "pass an httpx.AsyncClient with its authority in verify="
    return as_store_error(exc, STORE, remedy=remedy)


OVERFLOW: Final = "M-01"
UNKNOWN: Final = "M-02"
LOST: Final = "M-03"

FOREVER: Final = "PT2562047788015H12M55.807S"
"""CosId's ``FOREVER_SAFE_GUARD_DURATION``: 2^63-1 milliseconds."""

MOST_MS: Final = 2**63 - 1


def iso_duration(seconds: float) -> str:
    """Return a duration of at least 0 s in Java's ``Duration`` format: ``PT5M`` for 300 s."""
    if isinf(seconds) or (ms := round(seconds * 1000)) >= MOST_MS:
        return FOREVER
    hours, left = divmod(ms, 3_600_000)
    minutes, left = divmod(left, 60_000)
    parts = (f"{hours}H", f"{minutes}M", f"{left / 1000:.3f}".rstrip("0").rstrip(".") + "S")
    return "PT" + ("".join(part for part in parts if part[0] != "0" or "." in part) or "0S")


class HttpMachineIdDistributor(CellMachineIdDistributor):
    """The machine ids of one namespace on a CosId proxy, by the proxy's own rules.

    The protocol has an instance, its id and the server's time, and nothing else.  So only time
    protects an id, as between CosId's own processes:

    * There are no fences: the clocks of all instances must agree, and must not be set back between
      one owner of an id and the next.  `aiocosid.snowflake.CachedSnowflakeId`, whose ids are ahead
      of the clock, refuses such machine ids.
    * There are no tokens: two processes with the same ``instance_id`` get the same machine id
    without noticing, and a late release may free the next owner's id.  Leave ``instance_id`` out,
    or make sure that it is unique.
    * The width is not stored: all instances of a namespace must use the same ``bits``.
    * If the store behind the proxy loses its machine ids, it grants them again at once; aiocosid
    cannot detect that.
    """

    __slots__ = ("_bits", "_has_left", "_machine_id")

    keeps_fences = False

    _backend: HttpBackend

    def _forget(self) -> None:
        self._bits = 0  # the width in the last call that obtained an id
        self._machine_id = -1  # the id that call obtained, unless it was released
        self._has_left = False  # the server was asked to release this instance's id

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Obtain a machine id; see `aiocosid.abc.MachineIdDistributor.distribute`.

        The floor is the server's time, or the caller's if that is later, because the time of a
        server that is behind could lie within the former owner's ids.  The caller's times are not
        sent.

        A renewal follows, because the server may answer from its cache, with an id that went to
        another instance long ago.  In that case a unique instance takes a new name.  Otherwise the
        server is asked to release the id, and is then asked for an id once more.  This is not done
        for a stable instance, because on a release the server may overwrite the other instance's
        entry.

        Raises:
            MachineIdOverflowError: all machine ids are held.
            InvalidArgumentError: ``bits`` is outside its range; nothing was sent.
            StoreUnavailableError: the proxy cannot be reached, does not answer, or fails.
            StoreAuthenticationError: a gateway in front of the proxy rejects the credentials.
            StoreError: the proxy refuses, or the server is not a CosId proxy; or the server keeps,
                until its restart, an id for this instance that another instance may hold.
            ForkedError: the connections belong to the parent process.
        """
        check_machine_bits(bits)
        if self._is_unique and self._has_left:
            # A release may still be in transit, even if the call failed.
            self.instance_id, self._has_left = as_instance_id(None), False
        grant = await self._distribute(bits)
        if await self._is_lost():
            await self._be_forgotten(grant)
            grant = await self._distribute(bits)
            if await self._is_lost():
                raise _remembered(grant)
        self._bits, self._machine_id = bits, grant.machine_id
        return MachineGrant(grant.machine_id, max(grant.floor_ms, now_ms))

    async def _is_lost(self) -> bool:
        """Renew; return whether the server's id for this instance belongs to another instance."""
        return (await self._ask("PATCH", UNKNOWN, LOST)).code == LOST

    async def _be_forgotten(self, grant: MachineGrant) -> None:
        """Make the server's cached entry for this instance irrelevant."""
        if self._is_unique:
            self.instance_id = as_instance_id(None)
        elif self.instance_id.stable:
            raise _remembered(grant)
        else:
            await self._give_back()

    async def _distribute(self, bits: int) -> MachineGrant:
        size = 1 << bits
        answer = await self._ask("POST", OVERFLOW, machineBit=str(bits))
        if answer.code == OVERFLOW:
            raise MachineIdOverflowError(self.namespace, size=size)
        fields = as_object(answer.value)
        machine_id, last_ms = fields.get("machineId"), fields.get("lastTimeStamp")
        if not _is_integer(machine_id, 0, size - 1) or not _is_integer(last_ms, -1, MAX_ID):
            raise answer.unexpected(f"a machine id below {size} with its time")
        return MachineGrant(machine_id, last_ms)

    async def renew(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Renew the id; see `aiocosid.abc.MachineIdDistributor.renew`.

        Only the server's clock counts; neither time is sent.

        Raises:
            MachineIdLostError: the server says so, or was restarted and does not know the instance,
                or the id is not the last one that this object obtained.
            StoreUnavailableError: the proxy cannot be reached, does not answer, or fails.
            StoreAuthenticationError: a gateway in front of the proxy rejects the credentials.
            StoreError: the proxy refuses, or the server is not a CosId proxy.
            ForkedError: the connections belong to the parent process.
        """
        if (await self._guard(machine_id)).code == UNKNOWN:
            reason = "the proxy has no id for this instance, as happens after its restart"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)

    async def reassert(self, machine_id: int, *, now_ms: int, fence_ms: int) -> None:
        """Renew the id of a valid lease; see `aiocosid.abc.MachineIdDistributor.reassert`.

        A proxy that was restarted, or another node of it, does not know the instance.  It is asked
        for an id once more, and returns the instance's own id.

        Raises:
            CosIdError: as for `renew`.
        """
        if (await self._guard(machine_id)).code == UNKNOWN:
            grant = await self._distribute(self._bits)
            if grant.machine_id != machine_id:
                reason = f"the proxy has handed this instance {grant.machine_id} instead"
                raise MachineIdLostError(self.namespace, machine_id, reason=reason)

    async def _guard(self, machine_id: int) -> Answer:
        """Return an answer that is OK, or that says that the instance is unknown."""
        if machine_id != self._machine_id:  # the server would not check it
            reason = "this object did not get it"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        answer = await self._ask("PATCH", UNKNOWN, LOST)
        if answer.code == LOST:
            reason = "the proxy reports it as lost; another instance may hold it"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        return answer

    async def release(self, machine_id: int, *, last_ms: int) -> None:
        """Release the id; see `aiocosid.abc.MachineIdDistributor.release`.

        The server releases whatever id the instance has, so nothing is sent unless this object
        obtained exactly that id.  After an error the call may be repeated.

        A stable instance, which keeps its id, renews it one last time instead, because on a release
        the server may overwrite the entry although the id has gone to another instance.

        Raises:
            StoreUnavailableError: the proxy cannot be reached, does not answer, or fails.
            StoreAuthenticationError: a gateway in front of the proxy rejects the credentials.
            StoreError: the proxy refuses, or the server is not a CosId proxy.
            ForkedError: the connections belong to the parent process.
        """
        if machine_id != self._machine_id:
            return
        if self.instance_id.stable:
            await self._is_lost()
        else:
            await self._give_back()
        if self._machine_id == machine_id:
            self._machine_id = -1

    async def _give_back(self) -> None:
        self._has_left = True
        await self._ask("DELETE", UNKNOWN, LOST)

    async def _ask(self, method: str, *codes: str, **query: str) -> Answer:
        """Send a request about this instance; the caller handles errors with one of these codes."""
        self._ensure_own()
        query["instanceId"] = self.instance_id.text
        query["stable"] = "true" if self.instance_id.stable else "false"
        if method != "DELETE":
            query["safeGuardDuration"] = iso_duration(self.safe_guard)
        return await self._backend.ask(
            method, f"/machines{path_of(self.namespace)}", query, codes=codes
        )


def _remembered(grant: MachineGrant) -> StoreError:
    found = f"it has machine id {grant.machine_id} for this instance, and another one may hold it"
    return StoreError(STORE, found, remedy="restart the proxy")


def _is_integer(value: object, at_least: int, at_most: int) -> TypeGuard[int]:
    return type(value) is int and at_least <= value <= at_most
