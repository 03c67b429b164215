"""What the SQL stores share about machine ids: a distributor over one `Executor`."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from contextlib import contextmanager
from math import ceil, inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self
from zlib import crc32

from .. import _fork
from .._instance_id import as_instance_id
from .._uncopied import Uncopied
from ..abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    MAX_ID,
    InstanceId,
    MachineGrant,
    MachineIdDistributor,
)
from ..abc._ids import check_integer
from ..abc._machine import check_machine_bits, check_same_bits
from ..errors import (
    CosIdError,
    ForkedError,
    MachineIdLostError,
    MachineIdOverflowError,
    StoreUnavailableError,
)
from ._machine_tables import MAX_MACHINE_ID, MachineTables

if TYPE_CHECKING:
    from collections.abc import Generator

    from ._executor import Executor, Value
    from ._machine_tables import MachineDialect

__all__ = ("SqlMachineIdDistributor",)

TOKEN_BYTES: Final = 8
ATTEMPTS: Final = 1000  # at one id; each failure is somebody else's success


class SqlMachineIdDistributor(Uncopied, MachineIdDistributor):
    """The rows of one namespace in the table ``cosid_machine``."""

    __slots__ = (
        "_born",
        "_is_unique",
        "_owns_executor",
        "_tables",
        "_token",
        "store",
    )

    machine_dialect: ClassVar[MachineDialect]

    def __init__(
        self,
        executor: Executor,
        *,
        namespace: str,
        instance_id: InstanceId | str | None,
        safe_guard: float,
        interval: float,
        owns_executor: bool = False,
    ) -> None:
        """Describe who asks; nothing is sent yet.

        Args:
            executor: runs the statements.
            namespace: the namespace of the machine ids.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.
            owns_executor: whether `aclose` closes it.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        super().__init__(
            namespace=namespace,
            instance_id=as_instance_id(instance_id),
            safe_guard=safe_guard,
            interval=interval,
        )
        self.store = executor.label
        self._is_unique = instance_id is None
        self._owns_executor = owns_executor
        self._tables = MachineTables(executor, self.machine_dialect)
        self._born = _fork.generation
        self._token = ""  # of the last call that was handed an id

    @classmethod
    def _on(cls, executor: Executor, **described: Any) -> Self:  # noqa: ANN401 - as for __init__
        """Make one that shares an executor, past the subclass's own ``__init__``."""
        made = cls.__new__(cls)
        SqlMachineIdDistributor.__init__(made, executor, **described)
        return made

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
        """Describe who asks, on connections of its own, opened on first use, closed by `aclose`.

        Args:
            url: as for the store's own ``from_url``.
            namespace: the namespace of the machine ids, at most 91 characters.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        return cls._on(
            cls._own(url),
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
            owns_executor=True,
        )

    @classmethod
    @abstractmethod
    def _own(cls, url: str) -> Executor:
        """Return an executor that opens what it needs; nothing is opened yet."""

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id; see `aiocosid.abc.MachineIdDistributor.distribute`.

        The best row is looked for, and then taken if it is still as it was; else again.

        Raises:
            MachineBitsMismatchError: the namespace has another width; nothing was written.
            MachineIdOverflowError: all are held.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: the best row, or the width, is damaged; nothing was written.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer.
            ForkedError: the distributor, or the client beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        check_machine_bits(bits)
        check_integer("now_ms", now_ms, at_least=0)
        check_integer("latest_ms", latest_ms, at_least=-1)
        token = secrets.token_hex(TOKEN_BYTES)
        with self._in_one_process():
            for attempt in range(ATTEMPTS):
                grant = await self._attempt(bits, now_ms, latest_ms, token, attempt)
                if grant is not None:
                    self._token = token
                    return grant
        raise StoreUnavailableError(
            self._tables.executor.label,
            f"the machine ids of {self.namespace!r} were always taken by others first",
        )

    async def _attempt(
        self, bits: int, now_ms: int, latest_ms: int, token: str, attempt: int
    ) -> MachineGrant | None:
        """Look, and take what is best; None if somebody else was faster."""
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
        if holder is None:
            taken = await self._tables.fetch_row(
                self.machine_dialect.insert, **asked, **signed, limit=size - 1, own=own, bits=bits
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
                bits=bits,
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
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            SchemaMissingError: a table does not exist.
            StoreAuthenticationError: the store rejects the user, the password or the rights.
            StoreUnavailableError: the store cannot be reached, is busy, or does not answer.
            ForkedError: the distributor, or the client beneath it, is the parent process's.
            WrongLoopError: the connections are in use on another event loop.
        """
        check_integer("now_ms", now_ms, at_least=0)
        check_integer("mark_ms", mark_ms, at_least=-1)
        mine = self._mine(machine_id)
        signs = {"now": now_ms, "mark": mark_ms, "stable": int(self.instance_id.stable)}
        with self._in_one_process():
            row = await self._tables.fetch_row(
                self.machine_dialect.guard, **mine, **signs, token=self._token
            )
            if row is None:
                await self._lost(machine_id)

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
        check_integer("last_ms", last_ms, at_least=-1)
        mine = self._mine(machine_id)
        facts = {"last": last_ms, "stable": int(self.instance_id.stable)}
        with self._in_one_process():
            await self._tables.fetch_rows(
                self.machine_dialect.revert, **mine, **facts, token=self._token
            )

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child as an instance of its own.

        An instance id that was passed in stays what it is: the id moves to whoever asks last, who
        begins above the mark, and its former user learns of it at the next sign of life.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        await self._tables.executor.aopen()
        if self._born != _fork.generation:
            if self._is_unique:
                self.instance_id = as_instance_id(None)
            self._born, self._token = _fork.generation, ""

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open.

        Raises:
            WrongLoopError: they are in use on another event loop.
        """
        if self._owns_executor:
            await self._tables.executor.aclose()

    def _mine(self, machine_id: int) -> dict[str, Value]:
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        return {
            "namespace": self.namespace,
            "instance_id": self.instance_id.text,
            "machine_id": machine_id,
        }

    def _guard_ms(self) -> int:
        # An age that nothing has stands for ever.
        if self.safe_guard == inf:
            return MAX_ID
        return min(ceil(self.safe_guard * 1000), MAX_ID)

    @contextmanager
    def _in_one_process(self) -> Generator[None]:
        """Refuse to begin, or to end, in a process that was forked off: the id is the parent's."""
        self._ensure_own()
        try:
            yield
        except CosIdError:
            self._ensure_own()
            raise
        self._ensure_own()

    def _ensure_own(self) -> None:
        if self._born != _fork.generation:
            raise ForkedError(repr(self))
