"""Hands out machine ids through a CosId proxy, beside CosId's own processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeGuard

from ... import _fork
from ..._instance_id import as_instance_id
from ..._uncopied import Uncopied
from ...abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    InstanceId,
    MachineGrant,
    MachineIdDistributor,
)
from ...abc._ids import MAX_ID
from ...abc._machine import check_machine_bits
from ...errors import ForkedError, MachineIdLostError, MachineIdOverflowError, StoreError
from ._duration import iso_duration
from ._errors import LOST, OVERFLOW, STORE, UNKNOWN, as_object, refusal, unexpected, value_of
from ._link import BorrowedLink, Link, OwnedLink
from ._url import path_of

if TYPE_CHECKING:
    import httpx

    from ._errors import Answer

__all__ = ("HttpMachineIdDistributor",)

GONE: Final = {UNKNOWN, LOST}


class HttpMachineIdDistributor(Uncopied, MachineIdDistributor):
    """The machine ids of one namespace, from a CosId proxy.

    The protocol knows an instance, its id and the time of the server, and nothing else.  So it is
    time alone that protects, as between CosId's own processes:

    * There are no marks: the clocks of all instances have to agree, and must not be set back, from
      one owner of an id to the next.  `aiocosid.snowflake.CachedSnowflakeId`, whose ids are ahead
      of the clock, refuses such machine ids.
    * There are no tokens: two processes under one ``instance_id`` get one machine id and do not
      notice, and a farewell that comes late gives back what the next one has by then.  Leave it
      out, or be sure of it.
    * No width is noted: all instances of a namespace have to use the same ``bits``.
    * A store behind the proxy that forgot its machine ids hands them out again at once; whether it
      can is the server's business.
    """

    __slots__ = (
        *("_bits", "_born", "_is_unique", "_link", "_machine_id", "_owns_link", "_path"),
        "_has_left",
    )

    store = STORE
    keeps_marks = False

    def __init__(
        self,
        client: httpx.AsyncClient | Link,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> None:
        """Describe who asks; nothing is sent yet.

        Args:
            client: as for `HttpIdSegmentDistributor`.
            namespace: the namespace of the machine ids.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is another thing.
        """
        super().__init__(
            namespace=namespace,
            instance_id=as_instance_id(instance_id),
            safe_guard=safe_guard,
            interval=interval,
        )
        self._is_unique = instance_id is None
        self._link = client if isinstance(client, Link) else BorrowedLink(client)
        self._owns_link = False
        self._path = f"/machines{path_of(namespace)}"
        self._born = _fork.generation
        self._bits = 0  # of the last call that was handed an id
        self._machine_id = -1  # by that call, unless it was given back
        self._has_left = False  # the server was told to give back what our name has

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> Self:
        """Describe who asks on connections of its own, opened on first use, closed by `aclose`.

        Args:
            url: as for `HttpStore.from_url`.
            namespace: the namespace of the machine ids.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        made = cls(
            OwnedLink(url),
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
        )
        made._owns_link = True
        return made

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:  # noqa: ARG002 - the server has a clock of its own, and the last word
        """Take a machine id; see `aiocosid.abc.MachineIdDistributor.distribute`.

        The floor is the time that the server answers, or ours if that is later: a server that is
        behind would have it within the seconds of the former owner.  The times given are not sent.

        A sign of life follows: a server may answer from its own memory, of an id that has long gone
        to another instance.  If nobody else can have our name we take another one then.  Else the
        server is told to forget the id, and asked once more; but not for a stable instance, whose
        id a server may write over the other's when it is told so.

        Raises:
            MachineIdOverflowError: all are held.
            InvalidArgumentError: ``bits`` is outside its range; nothing was sent.
            StoreUnavailableError: the proxy cannot be reached, is silent, or fails.
            StoreAuthenticationError: what stands before the proxy rejects us.
            StoreError: the proxy refuses, or what answers is none; or it goes on remembering an id
                as ours that somebody else may hold, until it is started anew.
            ForkedError: the connections are the parent's.
        """
        check_machine_bits(bits)
        if self._is_unique and self._has_left:
            # The farewell may be on its way yet, whatever became of the call.
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
        """Give a sign of life; tell whether what the server remembers of us is another's."""
        answer = await self._ask("PATCH", {**self._who(), **self._how_long()})
        if not answer.is_ok and answer.code not in GONE:
            raise refusal(answer)
        return answer.code == LOST

    async def _be_forgotten(self, grant: MachineGrant) -> None:
        """Have what the server remembers of us be of no account any more."""
        if self._is_unique:
            self.instance_id = as_instance_id(None)
        elif self.instance_id.stable:
            raise _remembered(grant)
        else:
            await self._give_back()

    async def _distribute(self, bits: int) -> MachineGrant:
        about = {"machineBit": str(bits), **self._who(), **self._how_long()}
        answer = await self._ask("POST", about)
        if answer.code == OVERFLOW and not answer.is_ok:
            raise MachineIdOverflowError(self.namespace, size=1 << bits)
        if not answer.is_ok:
            raise refusal(answer)
        return _grant(answer, size=1 << bits)

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:  # noqa: ARG002
        """Give a sign of life; see `aiocosid.abc.MachineIdDistributor.guard`.

        The server's clock is what counts; neither time is sent.

        Raises:
            MachineIdLostError: the server says so, or was started anew and knows of nothing, or the
                id is not the one that this object was handed last.
            StoreUnavailableError: the proxy cannot be reached, is silent, or fails.
            StoreAuthenticationError: what stands before the proxy rejects us.
            StoreError: the proxy refuses, or what answers is none.
            ForkedError: the connections are the parent's.
        """
        answer = await self._guard(machine_id)
        if answer.code == UNKNOWN:
            reason = "the proxy knows of no id of this instance, as after its own restart"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)

    async def reassert(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:  # noqa: ARG002
        """Do so for an id that is surely ours; see `aiocosid.abc.MachineIdDistributor.reassert`.

        A proxy that was started anew, or another node of it, knows of nothing: it is asked for the
        id once more, and hands the instance its own.

        Raises:
            CosIdError: as for `guard`.
        """
        answer = await self._guard(machine_id)
        if answer.code == UNKNOWN:
            grant = await self._distribute(self._bits)
            if grant.machine_id != machine_id:
                reason = f"the proxy has handed this instance {grant.machine_id} instead"
                raise MachineIdLostError(self.namespace, machine_id, reason=reason)

    async def _guard(self, machine_id: int) -> Answer:
        """Return an answer that is OK, or that says that nothing is known."""
        if machine_id != self._machine_id:  # the server would not look at it
            reason = "this object was not handed it"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        answer = await self._ask("PATCH", {**self._who(), **self._how_long()})
        if answer.is_ok or answer.code == UNKNOWN:
            return answer
        if answer.code == LOST:
            reason = "the proxy says so: somebody else may hold it"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        raise refusal(answer)

    async def revert(self, machine_id: int, *, last_ms: int) -> None:  # noqa: ARG002 - has no place
        """Give the id back; see `aiocosid.abc.MachineIdDistributor.revert`.

        The server gives back whatever the instance has, so nothing is sent unless this object was
        handed that very id.  After an error it may be tried again.

        A stable instance, which keeps its id, gives a last sign of life instead: told to give it
        back, a server may write it although it has gone to another instance.

        Raises:
            StoreUnavailableError: the proxy cannot be reached, is silent, or fails.
            StoreAuthenticationError: what stands before the proxy rejects us.
            StoreError: the proxy refuses, or what answers is none.
            ForkedError: the connections are the parent's.
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
        answer = await self._ask("DELETE", self._who())
        if not answer.is_ok and answer.code not in GONE:
            raise refusal(answer)

    def _who(self) -> dict[str, str]:
        stable = "true" if self.instance_id.stable else "false"
        return {"instanceId": self.instance_id.text, "stable": stable}

    def _how_long(self) -> dict[str, str]:
        return {"safeGuardDuration": iso_duration(self.safe_guard)}

    async def _ask(self, method: str, about: dict[str, str]) -> Answer:
        if self._born != _fork.generation:
            raise ForkedError(repr(self))
        return await self._link.ask(method, self._path, about)

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections, as a new instance.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()
        if self._born != _fork.generation:
            # The parent lives on under the old name.
            self._born, self._machine_id = _fork.generation, -1
            if self._is_unique:
                self.instance_id = as_instance_id(None)

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        if self._owns_link:
            await self._link.aclose()


def _remembered(grant: MachineGrant) -> StoreError:
    found = f"it remembers machine id {grant.machine_id} as ours, and somebody else may hold it"
    return StoreError(STORE, f"{found}: restart the proxy")


def _grant(answer: Answer, *, size: int) -> MachineGrant:
    expected = f"a machine id below {size} with its time"
    told = as_object(value_of(answer, expected))
    machine_id, last_ms = told.get("machineId"), told.get("lastTimeStamp")
    if not _is_integer(machine_id, 0, size - 1) or not _is_integer(last_ms, -1, MAX_ID):
        raise unexpected(answer, expected)
    return MachineGrant(machine_id, last_ms)


def _is_integer(value: object, at_least: int, at_most: int) -> TypeGuard[int]:
    return type(value) is int and at_least <= value <= at_most
