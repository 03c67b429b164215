"""Hands out machine ids from Redis or Valkey, beside CosId's own processes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple, Self

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
from ...abc._ids import check_integer
from ...abc._machine import check_machine_bits, check_same_bits
from ...errors import ForkedError, MachineIdLostError, MachineIdOverflowError
from .._arguments import MAX_MS
from ._errors import STORE
from ._link import BorrowedLink, Link, OwnedLink
from ._machine_scripts import DISTRIBUTE, GUARD, REVERT, MachineKeys, ask, guard_ms

if TYPE_CHECKING:
    from ._link import RedisClient
    from ._scripts import Script

__all__ = ("RedisMachineIdDistributor",)

MAX_MACHINE_ID: Final = 2**31 - 1
TOKEN_BYTES: Final = 8


class _Taken(NamedTuple):
    """What a call was handed, as the server is told it once more.

    Attributes:
        machine_id: the id.
        born_ms: when we asked for it, by our clock.
        bits: the width of the namespace.
    """

    machine_id: int
    born_ms: bytes | int
    bits: int


_NOTHING: Final = _Taken(-1, b"", 0)


class RedisMachineIdDistributor(Uncopied, MachineIdDistributor):
    """The machine ids of one namespace on Redis or Valkey, under CosId's own keys.

    ``cosid:{<namespace>}:itc_idx``, ``:adder`` and ``:revert`` are CosId's; beside them lie
    ``:mark``, ``:stable``, ``:token``, ``:seen``, ``:bits``, ``:marker`` and ``:claim``, of which
    CosId knows nothing.

    Runs on asyncio.  Each call is one script, which may be applied twice by a driver that resends.

    Ids expire by the server's clock: when neither the owner's last stamp nor the server's own note
    of its last sign of life is younger than the safe guard.  A server that was started anew, or
    failed over, may have lost its last writes: it hands out none until all whom it may have
    forgotten are heard of or silent, as `aiocosid.abc.MachineIdDistributor` says.  A namespace has
    to be marked by ``aiocosid init`` before the first one is taken.
    """

    __slots__ = ("_born", "_is_unique", "_keys", "_link", "_owns_link", "_taken", "_token")

    store = STORE

    def __init__(
        self,
        client: RedisClient | Link,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> None:
        """Describe who asks; nothing is sent yet.

        Args:
            client: as for `RedisIdSegmentDistributor`.
            namespace: the namespace of the machine ids.  On a cluster it does not begin with
                ``}``, which would scatter its keys over the slots.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is not an
                asynchronous one.
        """
        super().__init__(
            namespace=namespace,
            instance_id=as_instance_id(instance_id),
            safe_guard=safe_guard,
            interval=interval,
        )
        self._is_unique = instance_id is None
        self._keys = MachineKeys(namespace)
        self._link = client if isinstance(client, Link) else BorrowedLink(client)
        self._owns_link = False
        self._born = _fork.generation
        self._token = b""  # of the last call that was handed an id
        self._taken = _NOTHING  # by that call, unless it was given back

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
            url: as for `RedisStore.from_url`.
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

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id; see `aiocosid.abc.MachineIdDistributor.distribute`.

        Raises:
            MachineBitsMismatchError: the namespace has another width; nothing was written.
            MachineIdOverflowError: all are held.
            MachineIdQuarantineError: the server may have forgotten who holds which.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, loading or failing over.
            StoreAuthenticationError: the server rejects the user, the password or the rights, or
                hides who it is.
            ForkedError: the connections are the parent's.
        """
        size = check_machine_bits(bits)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("latest_ms", latest_ms, at_least=-1)
        guard = guard_ms(self.safe_guard)
        stable = int(self.instance_id.stable)
        token = secrets.token_hex(TOKEN_BYTES).encode()
        facts = (stable, size - 1, now_ms, latest_ms, guard, token)
        found, answer = await self._ask(DISTRIBUTE, *facts)
        if found == "width":
            check_same_bits(self.namespace, bits, int(answer[0]))
        if found == "full":
            raise MachineIdOverflowError(self.namespace, size=size, holders=tuple(answer))
        machine_id, floor_ms = (int(each) for each in answer)
        self._token, self._taken = token, _Taken(machine_id, now_ms, bits)
        return MachineGrant(machine_id, floor_ms)

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Give a sign of life; see `aiocosid.abc.MachineIdDistributor.guard`.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody, or the same instance in
                another process; nothing was written.
            MachineIdQuarantineError: the server may have forgotten that somebody else has it.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, loading or failing over.
            StoreAuthenticationError: the server rejects the user, the password or the rights, or
                hides who it is.
            ForkedError: the connections are the parent's.
        """
        await self._guard(machine_id, now_ms, mark_ms, _NOTHING)

    async def reassert(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Do so for an id that is surely ours; see `aiocosid.abc.MachineIdDistributor.reassert`.

        Raises:
            CosIdError: as for `guard`; the quarantine only if this object was not handed the id, or
                gave it back.
        """
        taken = self._taken if self._taken.machine_id == machine_id else _NOTHING
        await self._guard(machine_id, now_ms, mark_ms, taken)

    async def _guard(self, machine_id: int, now_ms: int, mark_ms: int, taken: _Taken) -> None:
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("mark_ms", mark_ms, at_least=-1, at_most=MAX_MS)
        facts = (guard_ms(self.safe_guard), *taken[1:], int(self.instance_id.stable))
        found, answer = await self._ask(GUARD, machine_id, now_ms, mark_ms, self._token, *facts)
        if found == "lost":
            (holder,) = answer
            raise MachineIdLostError(self.namespace, machine_id, reason=self._loss(holder))

    def _loss(self, holder: str) -> str:
        if not holder:
            return "nobody holds it any more"
        if holder == self.instance_id.text:
            return f"it was handed out again to the same instance {holder}, which runs twice"
        return f"{holder} holds it"

    async def revert(self, machine_id: int, *, last_ms: int) -> None:
        """Give the id back; see `aiocosid.abc.MachineIdDistributor.revert`.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, loading or failing over.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the connections are the parent's.
        """
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("last_ms", last_ms, at_least=-1, at_most=MAX_MS)
        if self._taken.machine_id == machine_id:
            self._taken = _NOTHING
        await self._ask(REVERT, machine_id, last_ms, int(self.instance_id.stable), self._token)

    async def _ask(self, script: Script, *facts: bytes | int) -> tuple[str, list[str]]:
        if self._born != _fork.generation:
            raise ForkedError(repr(self))
        return await ask(self._link, script, self._keys, self.instance_id.text.encode(), *facts)

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections, as a new instance.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()
        if self._born != _fork.generation:
            # The parent lives on under the old name.  One that was given stays, and whoever of the
            # two takes the id last has it.
            self._born, self._token, self._taken = _fork.generation, b"", _NOTHING
            if self._is_unique:
                self.instance_id = as_instance_id(None)

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        if self._owns_link:
            await self._link.aclose()
