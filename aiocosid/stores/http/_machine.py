"""Hands out machine ids through a CosId proxy, beside CosId's own processes."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING, Final, TypeGuard

from ..._instance_id import as_instance_id
from ...abc import MachineGrant
from ...abc._ids import MAX_ID
from ...abc._machine import check_machine_bits
from ...errors import MachineIdLostError, MachineIdOverflowError, StoreError
from ...machine.distributor import CellMachineIdDistributor
from ._backend import path_of
from ._errors import STORE, as_object

if TYPE_CHECKING:
    from ._backend import HttpBackend
    from ._errors import Answer

__all__ = ("HttpMachineIdDistributor", "iso_duration")

OVERFLOW: Final = "M-01"
UNKNOWN: Final = "M-02"
LOST: Final = "M-03"

FOREVER: Final = "PT2562047788015H12M55.807S"
"""CosId's ``FOREVER_SAFE_GUARD_DURATION``: 2^63-1 milliseconds."""

MOST_MS: Final = 2**63 - 1


def iso_duration(seconds: float) -> str:
    """Return a time of at least 0 s as Java's ``Duration`` writes it: ``PT5M`` for 300 s."""
    if isinf(seconds) or (ms := round(seconds * 1000)) >= MOST_MS:
        return FOREVER
    hours, left = divmod(ms, 3_600_000)
    minutes, left = divmod(left, 60_000)
    parts = (f"{hours}H", f"{minutes}M", f"{left / 1000:.3f}".rstrip("0").rstrip(".") + "S")
    return "PT" + ("".join(part for part in parts if part[0] != "0" or "." in part) or "0S")


class HttpMachineIdDistributor(CellMachineIdDistributor):
    """The machine ids of one namespace, from a CosId proxy: no cells, but its own rules.

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

    __slots__ = ("_bits", "_has_left", "_machine_id")

    keeps_marks = False

    _backend: HttpBackend

    def _forget(self) -> None:
        self._bits = 0  # of the last call that was handed an id
        self._machine_id = -1  # by that call, unless it was given back
        self._has_left = False  # the server was told to give back what our name has

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
        return (await self._ask("PATCH", UNKNOWN, LOST)).code == LOST

    async def _be_forgotten(self, grant: MachineGrant) -> None:
        """Have what the server remembers of us be of no account any more."""
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
        if (await self._guard(machine_id)).code == UNKNOWN:
            reason = "the proxy knows of no id of this instance, as after its own restart"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)

    async def reassert(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:  # noqa: ARG002
        """Do so for an id that is surely ours; see `aiocosid.abc.MachineIdDistributor.reassert`.

        A proxy that was started anew, or another node of it, knows of nothing: it is asked for the
        id once more, and hands the instance its own.

        Raises:
            CosIdError: as for `guard`.
        """
        if (await self._guard(machine_id)).code == UNKNOWN:
            grant = await self._distribute(self._bits)
            if grant.machine_id != machine_id:
                reason = f"the proxy has handed this instance {grant.machine_id} instead"
                raise MachineIdLostError(self.namespace, machine_id, reason=reason)

    async def _guard(self, machine_id: int) -> Answer:
        """Return an answer that is OK, or that says that nothing is known."""
        if machine_id != self._machine_id:  # the server would not look at it
            reason = "this object was not handed it"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        answer = await self._ask("PATCH", UNKNOWN, LOST)
        if answer.code == LOST:
            reason = "the proxy says so: somebody else may hold it"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        return answer

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
        await self._ask("DELETE", UNKNOWN, LOST)

    async def _ask(self, method: str, *codes: str, **query: str) -> Answer:
        """Ask who we are about; errors with one of these codes are the caller's."""
        self._ensure_own()
        query["instanceId"] = self.instance_id.text
        query["stable"] = "true" if self.instance_id.stable else "false"
        if method != "DELETE":
            query["safeGuardDuration"] = iso_duration(self.safe_guard)
        return await self._backend.ask(
            method, f"/machines{path_of(self.namespace)}", query, codes=codes
        )


def _remembered(grant: MachineGrant) -> StoreError:
    found = f"it remembers machine id {grant.machine_id} as ours, and somebody else may hold it"
    return StoreError(STORE, f"{found}: restart the proxy")


def _is_integer(value: object, at_least: int, at_most: int) -> TypeGuard[int]:
    return type(value) is int and at_least <= value <= at_most
