"""Hands out machine ids through a CosId proxy, beside CosId's own processes."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING, Final, TypeGuard

from ...abc import MAX_ID, MachineGrant
from ...abc.checks import check_machine_bits
from ...errors import MachineIdLostError, MachineIdOverflowError, StoreError
from ...machine.distributor import CellMachineIdDistributor
from ...machine.instance_ids import as_instance_id
from ._backend import STORE, as_object, path_of

if TYPE_CHECKING:
    from ._backend import Answer, HttpBackend

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
    """The machine ids of one namespace, from a CosId proxy, by the proxy's own rules.

    The protocol has an instance, its id and the server's time, and nothing else.  So only time
    protects an id, as between CosId's own processes:

    * There are no time marks: the clocks of all instances have to agree, and must not be set back
      between one owner of an id and the next.  `aiocosid.snowflake.CachedSnowflakeId`, whose ids
      are ahead of the clock, refuses such machine ids.
    * There are no tokens: two processes with the same ``instance_id`` get the same machine id
    without noticing, and a late release may free the next owner's id.  Leave ``instance_id`` out,
    or make sure that it is unique.
    * The width is not stored: all instances of a namespace have to use the same ``bits``.
    * A store behind the proxy that lost its machine ids hands them out again at once; aiocosid
    cannot detect that.
    """

    __slots__ = ("_bits", "_has_left", "_machine_id")

    keeps_marks = False

    _backend: HttpBackend

    def _forget(self) -> None:
        self._bits = 0  # of the last call that was handed an id
        self._machine_id = -1  # by that call, unless it was given back
        self._has_left = False  # the server was asked to release our instance's id

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:  # noqa: ARG002 - the server has a clock of its own, and the last word
        """Take a machine id; see `aiocosid.abc.MachineIdDistributor.distribute`.

        The floor is the server's time, or the caller's if that is later: the time of a server that
        is behind could lie within the former owner's ids.  The caller's times are not sent.

        A renewal follows, because the server may answer from its cache, with an id that went to
        another instance long ago.  In that case a unique instance takes a new name.  Otherwise the
        server is asked to release the id, and then for an id once more; but not for a stable
        instance: on a release the server may overwrite the other instance's entry.

        Raises:
            MachineIdOverflowError: all are held.
            InvalidArgumentError: ``bits`` is outside its range; nothing was sent.
            StoreUnavailableError: the proxy cannot be reached, does not answer, or fails.
            StoreAuthenticationError: a gateway before the proxy rejects the credentials.
            StoreError: the proxy refuses, or the server is no CosId proxy; or until its restart it
                keeps an id for this instance that another one may hold.
            ForkedError: the connections are the parent's.
        """
        check_machine_bits(bits)
        if self._is_unique and self._has_left:
            # A release may still be on its way, even if the call failed.
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
        """Renew; return whether the id that the server has for us is another instance's."""
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

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:  # noqa: ARG002
        """Renew the id; see `aiocosid.abc.MachineIdDistributor.guard`.

        The server's clock counts; neither time is sent.

        Raises:
            MachineIdLostError: the server says so, or was restarted and does not know the instance,
                or the id is not the last one that this object got.
            StoreUnavailableError: the proxy cannot be reached, does not answer, or fails.
            StoreAuthenticationError: a gateway before the proxy rejects the credentials.
            StoreError: the proxy refuses, or the server is no CosId proxy.
            ForkedError: the connections are the parent's.
        """
        if (await self._guard(machine_id)).code == UNKNOWN:
            reason = "the proxy has no id for this instance, as after its own restart"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)

    async def reassert(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:  # noqa: ARG002
        """Renew an id of a valid lease; see `aiocosid.abc.MachineIdDistributor.reassert`.

        A proxy that was restarted, or another node of it, does not know the instance: it is asked
        for an id once more, and returns the instance's own.

        Raises:
            CosIdError: as for `guard`.
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
            reason = "the proxy says so: another instance may hold it"
            raise MachineIdLostError(self.namespace, machine_id, reason=reason)
        return answer

    async def revert(self, machine_id: int, *, last_ms: int) -> None:  # noqa: ARG002 - has no place
        """Give the id back; see `aiocosid.abc.MachineIdDistributor.revert`.

        The server releases whatever id the instance has, so nothing is sent unless this object got
        exactly that id.  After an error it may be called again.

        A stable instance, which keeps its id, renews it a last time instead: on a release the
        server may overwrite the entry although the id has gone to another instance.

        Raises:
            StoreUnavailableError: the proxy cannot be reached, does not answer, or fails.
            StoreAuthenticationError: a gateway before the proxy rejects the credentials.
            StoreError: the proxy refuses, or the server is no CosId proxy.
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
