"""What the SQL stores share about machine ids: a distributor over one `Executor`."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NoReturn
from zlib import crc32

from ..abc import MachineGrant
from ..abc._ids import check_integer
from ..abc._machine import check_machine_bits, check_same_bits
from ..errors import MachineIdLostError, MachineIdOverflowError, StoreUnavailableError
from ._arguments import MAX_MS
from ._machine_markers import lasts_ms
from ._machine_tables import MAX_MACHINE_ID
from ._sql_machine_client import Claim, SqlMachineClient

if TYPE_CHECKING:
    from ._executor import Value

__all__ = ("SqlMachineIdDistributor",)

TOKEN_BYTES: Final = 8
ATTEMPTS: Final = 1000  # at one id; each failure is somebody else's success
CLAIMS: Final = 3  # of an id that others claim at the same moment; the earliest gets it


class SqlMachineIdDistributor(SqlMachineClient):
    """The rows of one namespace in the table ``cosid_machine``."""

    __slots__ = ()

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id; see `aiocosid.abc.MachineIdDistributor.distribute`.

        The best row is looked for, and then taken if it is still as it was; else again.

        Raises:
            MachineBitsMismatchError: the namespace has another width; nothing was written.
            MachineIdOverflowError: all are held.
            MachineIdQuarantineError: the store may have forgotten who holds which.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: the best row, or the width, is damaged; nothing was written.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer.
            ForkedError: the distributor, or the client beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        check_machine_bits(bits)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("latest_ms", latest_ms, at_least=-1)
        token = secrets.token_hex(TOKEN_BYTES)
        with self._in_one_process():
            for attempt in range(ATTEMPTS):
                grant = await self._attempt(bits, now_ms, latest_ms, token, attempt)
                if grant is not None:
                    self._token = token
                    self._claim = Claim(grant.machine_id, bits, now_ms)
                    return grant
        raise StoreUnavailableError(
            self._tables.executor.label,
            f"the machine ids of {self.namespace!r} were always taken by others first",
        )

    async def _attempt(
        self, bits: int, now_ms: int, latest_ms: int, token: str, attempt: int
    ) -> MachineGrant | None:
        """Look, and take what is best; None if somebody else was faster."""
        await self._markers.check(self.namespace, self.safe_guard)
        check_same_bits(self.namespace, bits, await self._tables.bits(self.namespace))
        size = 1 << bits
        limits = {"limit": size - 1, "latest": latest_ms, "guard": self._guard_ms()}
        asked = {"namespace": self.namespace, "instance_id": self.instance_id.text}
        stable = int(self.instance_id.stable)
        rows = await self._tables.fetch_rows(
            self.machine_dialect.look, **asked, stable=stable, **limits
        )
        if not rows:
            await self._overflow(size)
        # The best; after a lost race one of its equals, so that not all go for the same again.
        equals = [row for row in rows if row[4] == rows[0][4]]
        found = equals[crc32(self.instance_id.text.encode()) % len(equals) if attempt else 0]
        name, _, holder, stamp, _, own = found
        if type(stamp) is not int:
            raise self._tables.damaged(name, stamp)
        signed: dict[str, Value] = {"now": now_ms, "stable": stable, "token": token}
        noted: dict[str, Value] = {"bits": bits, "lasts": lasts_ms(self.safe_guard)}
        if holder is None:
            taken = await self._tables.fetch_row(
                self.machine_dialect.insert, **asked, **signed, limit=size - 1, own=own, **noted
            )
        else:
            taken = await self._tables.fetch_row(
                self.machine_dialect.take,
                name=name,
                holder=holder,
                stamp=stamp,
                instance_id=self.instance_id.text,
                **signed,
                namespace=self.namespace,
                **noted,
            )
        if taken is None:
            return None
        if own > (holder == self.instance_id.text):
            await self._tables.fetch_rows(
                self.machine_dialect.release, **asked, name=taken[0], stable=stable, **limits
            )
        # The mark as the very statement found it that took the row: its owner may have been late.
        return MachineGrant(taken[1], max(stamp, taken[2]))

    async def _overflow(self, size: int) -> NoReturn:
        rows = await self._tables.fetch_rows(
            self.machine_dialect.holders, namespace=self.namespace, limit=size - 1
        )
        holders = tuple(str(row[0]) for row in rows)
        raise MachineIdOverflowError(self.namespace, size=size, holders=holders)

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Give a sign of life; see `aiocosid.abc.MachineIdDistributor.guard`.

        Raises:
            MachineIdLostError: the id is not ours, or was handed out to another object or process
                that goes by the same instance id.
            MachineIdQuarantineError: the store may have forgotten who holds which.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer.
            ForkedError: the distributor, or the client beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        told = self._told(machine_id, now_ms, mark_ms)
        with self._in_one_process():
            if await self._guarded(told):
                return
            left = await self._markers.left(self.namespace, self.safe_guard)
            if left > 0:
                raise self._markers.quarantine(self.namespace, left)
            # It may have ended just now.
            if not await self._guarded(told):
                await self._lost(machine_id)

    async def reassert(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Do so for an id that is surely ours; see `aiocosid.abc.MachineIdDistributor.reassert`.

        Raises:
            MachineIdLostError: as for `guard`; or somebody who took it earlier asserts it too, or
                CosId's last sign of life for it is younger than the quarantine is long.
            MachineIdQuarantineError: this object was not handed the id, or gave it back.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer.
            ForkedError: the distributor, or the client beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        told = self._told(machine_id, now_ms, mark_ms)
        claim = self._claim
        if claim is None or claim.machine_id != machine_id:
            await self.guard(machine_id, now_ms=now_ms, mark_ms=mark_ms)
            return
        with self._in_one_process():
            for _ in range(CLAIMS):
                if await self._guarded(told):
                    return
                if await self._markers.left(self.namespace, self.safe_guard) and (
                    await self._claimed(told, claim)
                ):
                    return
            await self._lost(machine_id)

    async def _guarded(self, told: dict[str, Value]) -> bool:
        lasts = lasts_ms(self.safe_guard)
        row = await self._tables.fetch_row(self.machine_dialect.guard, **told, lasts=lasts)
        return row is not None

    async def _claimed(self, told: dict[str, Value], claim: Claim) -> bool:
        row = await self._tables.fetch_row(
            self.machine_dialect.reassert, **told, bits=claim.bits, born=claim.born_ms
        )
        if row is None:
            return False
        name, others = row
        if others:  # what it held when the store was saved
            await self._tables.fetch_rows(
                self.machine_dialect.release,
                namespace=self.namespace,
                instance_id=self.instance_id.text,
                name=name,
                stable=0,
                limit=MAX_MACHINE_ID,
                latest=-2,
                guard=self._guard_ms(),
            )
        return True

    async def _lost(self, machine_id: int) -> NoReturn:
        row = await self._tables.fetch_row(
            self.machine_dialect.holder, namespace=self.namespace, machine_id=machine_id
        )
        holder = row[0] if row is not None else ""
        if holder == self.instance_id.text:
            reason = f"it was handed out again to an instance that is called {holder!r} as well"
        else:
            reason = f"{holder!r} holds it" if holder else "nobody holds it"
        raise MachineIdLostError(self.namespace, machine_id, reason=reason)

    async def revert(self, machine_id: int, *, last_ms: int) -> None:
        """Give the id back; see `aiocosid.abc.MachineIdDistributor.revert`.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer.
            ForkedError: the distributor, or the client beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        check_integer("last_ms", last_ms, at_least=-1, at_most=MAX_MS)
        mine = self._mine(machine_id)
        facts = {"last": last_ms, "stable": int(self.instance_id.stable)}
        if self._claim is not None and self._claim.machine_id == machine_id:
            self._claim = None
        with self._in_one_process():
            await self._tables.fetch_rows(
                self.machine_dialect.revert, **mine, **facts, token=self._token
            )

    def _told(self, machine_id: int, now_ms: int, mark_ms: int) -> dict[str, Value]:
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("mark_ms", mark_ms, at_least=-1, at_most=MAX_MS)
        return {
            **self._mine(machine_id),
            "now": now_ms,
            "mark": mark_ms,
            "stable": int(self.instance_id.stable),
            "token": self._token,
        }
