"""Hands out machine ids from etcd."""

from __future__ import annotations

import sys
from secrets import token_hex
from typing import TYPE_CHECKING, Final, Self

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
from ...abc._machine import check_machine_bits
from ...errors import ForkedError, MachineIdLostError
from .._arguments import MAX_MS
from .._memory_marker import Claim
from ._errors import STORE
from ._link import BorrowedLink, Link, OwnedLink
from ._machine_calls import Namespace, Outcome
from ._machine_keys import MachineKeys
from ._url import PREFIX, check_prefix

if TYPE_CHECKING:
    from ._link import EtcdClient
    from ._machine_state import MachineState

__all__ = ("EtcdMachineIdDistributor",)

MAX_MACHINE_ID: Final = 2**31 - 1
TOKEN_BYTES: Final = 8


class EtcdMachineIdDistributor(Uncopied, MachineIdDistributor):
    """The machine ids of one namespace on etcd, under ``/cosid/machine/<namespace>/``.

    CosId has no store on etcd: the keys are ours.  Runs on asyncio.

    Each call reads, and writes in one transaction that is carried out if nobody else has written
    any of it since; it may be applied twice.

    etcd shows no clock, but counts down leases, by the monotonic clock of its leader: they are the
    store's clock here.  An owner's sign of life is on a lease as long as its *own* safe guard,
    renewed by each `guard`, and who has none is silent.  A quarantine is a key on a lease, and over
    with it.  When another member becomes the leader, all leases begin anew: never is one shorter
    than it was to be.

    A cluster that forgot is known by its id, and by its raft term and its revision, which never
    fall on a sound one: the marker has the first two, and each distributor object remembers how far
    the cluster was.  A namespace has to be marked by ``aiocosid init`` before the first machine id
    is taken.
    """

    __slots__ = ("_born", "_is_unique", "_link", "_owns_link", "_space", "_taken", "_token")

    store = STORE

    def __init__(
        self,
        client: EtcdClient | Link,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
        prefix: str = PREFIX,
    ) -> None:
        """Describe who asks; nothing is sent yet.

        Args:
            client: as for `EtcdIdSegmentDistributor`.
            namespace: the namespace of the machine ids.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which our id may go to somebody else.
            interval: seconds between two signs of life.
            prefix: what the keys begin with, in front of ``/machine/``.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client another one.
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
        self._space = Namespace(self._link, MachineKeys(check_prefix(prefix), namespace))
        self._born = _fork.generation
        self._token: str | None = None  # of the last call that was handed an id
        self._taken: Claim | None = None  # by that call, unless it was given back

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
            url: as for `EtcdStore.from_url`.
            namespace: the namespace of the machine ids.
            instance_id: who asks; by default an instance that nobody else is.
            safe_guard: seconds without a sign of life after which our id may go to somebody else.
            interval: seconds between two signs of life.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        link = OwnedLink(url)
        made = cls(
            link,
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
            prefix=link.target.prefix,
        )
        made._owns_link = True
        return made

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id; see `aiocosid.abc.MachineIdDistributor.distribute`.

        Raises:
            MachineBitsMismatchError: the namespace has another width; nothing was written.
            MachineIdOverflowError: all are held.
            MachineIdQuarantineError: the cluster may have forgotten who holds which.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreUnavailableError: no member can be reached, or they have no leader.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the connections are the parent's.
        """
        check_machine_bits(bits)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("latest_ms", latest_ms, at_least=-1)
        self._ensure_own()
        token = sys.intern(token_hex(TOKEN_BYTES))  # a pool tells tokens apart by identity

        def take(state: MachineState) -> Outcome:
            grant = state.pool.distribute(
                self.instance_id,
                bits,
                now_ms=now_ms,
                latest_ms=latest_ms,
                seen=state.elapsed,
                safe_guard=self.safe_guard,
                token=token,
            )
            return Outcome(grant, touched=grant.machine_id, hands_out=True)

        grant: MachineGrant = await self._space.run(take, seconds=self.safe_guard, reads_all=True)
        self._token = token
        self._taken = Claim(self.instance_id.text, token, now_ms, bits, grant.machine_id)
        return grant

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Give a sign of life; see `aiocosid.abc.MachineIdDistributor.guard`.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody, or the same instance in
                another process; nothing was written.
            MachineIdQuarantineError: the cluster may have forgotten that somebody else has it.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreUnavailableError: no member can be reached, or they have no leader.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the connections are the parent's.
        """
        await self._guard(machine_id, now_ms, mark_ms, None)

    async def reassert(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Do so for an id that is surely ours; see `aiocosid.abc.MachineIdDistributor.reassert`.

        Raises:
            CosIdError: as for `guard`; the quarantine only if this object was not handed the id, or
                gave it back.
        """
        taken = self._taken
        is_ours = taken is not None and taken.machine_id == machine_id
        await self._guard(machine_id, now_ms, mark_ms, taken if is_ours else None)

    async def _guard(self, machine_id: int, now_ms: int, mark_ms: int, taken: Claim | None) -> None:
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("mark_ms", mark_ms, at_least=-1, at_most=MAX_MS)
        self._ensure_own()

        def keep(state: MachineState) -> Outcome:
            pool = state.pool
            try:
                pool.guard(
                    self.instance_id,
                    machine_id,
                    now_ms=now_ms,
                    mark_ms=mark_ms,
                    seen=state.elapsed,
                    safe_guard=self.safe_guard,
                    token=self._token,
                    claim=taken,
                )
            except MachineIdLostError as error:
                entry = pool.entries.get(machine_id)
                if entry is None or entry.holder != self.instance_id.text:
                    raise
                raise self._handed_out_again(machine_id) from error
            is_assertion = taken is not None and pool.marker.since is not None
            return Outcome(touched=machine_id, hands_out=is_assertion, renews=True)

        await self._space.run(keep, machine_id=machine_id, seconds=self.safe_guard)

    def _handed_out_again(self, machine_id: int) -> MachineIdLostError:
        text = self.instance_id.text
        reason = f"it was handed out again to the same instance {text}, which runs twice"
        return MachineIdLostError(self.namespace, machine_id, reason=reason)

    async def revert(self, machine_id: int, *, last_ms: int) -> None:
        """Give the id back; see `aiocosid.abc.MachineIdDistributor.revert`.

        Raises:
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreUnavailableError: no member can be reached, or they have no leader.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the connections are the parent's.
        """
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("last_ms", last_ms, at_least=-1, at_most=MAX_MS)
        self._ensure_own()
        if self._taken is not None and self._taken.machine_id == machine_id:
            self._taken = None

        def give(state: MachineState) -> Outcome:
            state.pool.revert(self.instance_id, machine_id, last_ms=last_ms, token=self._token)
            return Outcome()

        await self._space.run(give, machine_id=machine_id)

    def _ensure_own(self) -> None:
        if self._born != _fork.generation:
            raise ForkedError(repr(self))

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child as a new instance.

        Raises:
            ForkedError: the client was passed in, and is the parent's; or the parent had a
                connection when this process was forked, after which grpc does not work in it.
        """
        self._link.aopen()
        if self._born != _fork.generation:
            # The parent lives on under the old name.  One that was given stays, and whoever of the
            # two takes the id last has it.
            self._born, self._token, self._taken = _fork.generation, None, None
            self._space.forget()
            if self._is_unique:
                self.instance_id = as_instance_id(None)

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        if self._owns_link:
            await self._link.aclose()
