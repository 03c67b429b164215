"""Hands out machine ids from ZooKeeper, beside CosId's own processes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, Self

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
from ._errors import STORE
from ._link import OwnedLink, as_link
from ._machine_keep import NEVER, NOTHING, Lost, Sign, Taken, Written, give_back, keep
from ._machine_nodes import MachineNodes
from ._machine_take import Asked, take
from ._machine_texts import MAX_MACHINE_ID, guard_ms

if TYPE_CHECKING:
    from ._nodes import Nodes

__all__ = ("ZookeeperMachineIdDistributor",)

TOKEN_BYTES: Final = 8


class ZookeeperMachineIdDistributor(Uncopied, MachineIdDistributor):
    """The machine ids of one namespace on ZooKeeper, in CosId's own nodes.

    ``/cosid/<namespace>/__counter``, ``/__itc_idx`` and ``/__revert`` are CosId's; below
    ``/aiocosid/<namespace>`` lie ``marker``, ``notes`` and ``clock``, of which CosId knows nothing.

    Runs on asyncio.  Each call reads, and then writes in one transaction, which fails if anything
    that counts has changed since; then it begins anew.

    The nodes are no ephemeral ones: an id expires when it was silent for the safe guard, by the
    clock of ZooKeeper's leader.  A session that is interrupted silences the lease all the same, at
    once, until a sign of life that was sent after that has succeeded.

    ZooKeeper keeps what it has confirmed when its leader fails.  It forgets if its data is removed,
    or put back from a copy.  The first is seen by the marker, which names the transaction that
    made the namespace's node.  The second is seen by whoever holds an id, with its next sign of
    life: what it was told to be written is not there.  Then nobody is handed an id until all whom
    the server may have forgotten are heard of or silent, as `aiocosid.abc.MachineIdDistributor`
    says; but whom the copy has handed an id before that keeps it, for the former owner is silent,
    and he is not.  A namespace has to be marked by ``aiocosid init`` before the first is taken.
    """

    __slots__ = (
        "_at",
        "_born",
        "_is_unique",
        "_link",
        "_owns_link",
        "_taken",
        "_token",
        "_written",
    )

    store = STORE

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - the driver has no types
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> None:
        """Describe who asks; nothing is sent yet.

        Args:
            client: as for `ZookeeperIdSegmentDistributor`.
            namespace: the namespace of the machine ids.
            instance_id: who asks; by default an instance that nobody else is.  What no node can be
                called is escaped in its node's name, as in a URL; so is a slash, of which CosId
                would make two nodes.
            safe_guard: seconds without a sign of life after which an id may go to somebody else.
            interval: seconds between two signs of life.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is none of
                kazoo's.
        """
        super().__init__(
            namespace=namespace,
            instance_id=as_instance_id(instance_id),
            safe_guard=safe_guard,
            interval=interval,
        )
        self._is_unique = instance_id is None
        self._at = MachineNodes(namespace)
        self._link = as_link(client)
        self._owns_link = False
        self._born = _fork.generation
        self._let_go()

    def _let_go(self) -> None:
        self._token = ""  # of the last call that was handed an id
        self._taken = NOTHING  # by that call, unless it was given back
        self._written = NEVER  # when the server has noted that last

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
        """Describe who asks in a session of its own, begun on first use and ended by `aclose`.

        Args:
            url: as for `ZookeeperStore.from_url`.
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

    @property
    def session(self) -> int:
        """Another number each time that the session is interrupted, from that very moment."""
        return self._link.session

    async def distribute(self, bits: int, *, now_ms: int, latest_ms: int) -> MachineGrant:
        """Take a machine id; see `aiocosid.abc.MachineIdDistributor.distribute`.

        Raises:
            MachineBitsMismatchError: the namespace has another width; nothing was written.
            MachineIdOverflowError: all are held.
            MachineIdQuarantineError: the server may have forgotten who holds which.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: a node is damaged; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, or without a leader.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the session is the parent's.
            WrongLoopError: the session is in use on another event loop.
        """
        check_machine_bits(bits)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("latest_ms", latest_ms, at_least=-1)
        self._ensure_own()
        asked = Asked(
            who=self.instance_id,
            bits=bits,
            now_ms=now_ms,
            latest_ms=latest_ms,
            guard_ms=guard_ms(self.safe_guard),
            token=secrets.token_hex(TOKEN_BYTES),
        )

        async def attempt(nodes: Nodes) -> tuple[MachineGrant, Written] | None:
            return await take(nodes, self._at, asked)

        grant, written = await self._link.until_done(attempt)
        self._token, self._taken = asked.token, Taken(grant.machine_id, now_ms, bits)
        self._written = written
        return grant

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Give a sign of life; see `aiocosid.abc.MachineIdDistributor.guard`.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody, or the same instance in
                another process; nothing was written.
            MachineIdQuarantineError: the server may have forgotten that somebody else has it.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: a node is damaged; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, or without a leader.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the session is the parent's.
            WrongLoopError: the session is in use on another event loop.
        """
        await self._guard(machine_id, now_ms, mark_ms, NOTHING)

    async def reassert(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Do so for an id that is surely ours; see `aiocosid.abc.MachineIdDistributor.reassert`.

        Raises:
            CosIdError: as for `guard`; the quarantine only if this object was not handed the id, or
                gave it back.
        """
        taken = self._taken if self._taken.machine_id == machine_id else NOTHING
        await self._guard(machine_id, now_ms, mark_ms, taken)

    async def _guard(self, machine_id: int, now_ms: int, mark_ms: int, taken: Taken) -> None:
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("mark_ms", mark_ms, at_least=-1, at_most=MAX_MS)
        self._ensure_own()
        sign = Sign(
            who=self.instance_id,
            machine_id=machine_id,
            now_ms=now_ms,
            mark_ms=mark_ms,
            token=self._token,
            guard_ms=guard_ms(self.safe_guard),
            taken=taken,
            written=self._written,
        )

        async def attempt(nodes: Nodes) -> Written | Lost | None:
            return await keep(nodes, self._at, sign)

        done: Written | Lost = await self._link.until_done(attempt)
        if isinstance(done, Lost):
            raise MachineIdLostError(self.namespace, machine_id, reason=self._loss(done.holder))
        if sign.token == self._token:
            # One that was put back counts on from where it was; a late answer is an old one.
            is_next = self._written == sign.written
            self._written = done if is_next else max(self._written, done)

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
            CorruptMachineStateError: a node is damaged; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, or without a leader.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the session is the parent's.
            WrongLoopError: the session is in use on another event loop.
        """
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("last_ms", last_ms, at_least=-1, at_most=MAX_MS)
        self._ensure_own()
        if self._taken.machine_id == machine_id:
            self._taken = NOTHING
        token = self._token

        async def attempt(nodes: Nodes) -> bool | None:
            return await give_back(
                nodes,
                self._at,
                instance=self.instance_id.text,
                machine_id=machine_id,
                last_ms=last_ms,
                is_stable=self.instance_id.stable,
                token=token,
            )

        await self._link.until_done(attempt)

    def _ensure_own(self) -> None:
        if self._born != _fork.generation:
            raise ForkedError(repr(self))

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with a new session, as a new instance.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()
        if self._born != _fork.generation:
            # The parent lives on under the old name.  One that was given stays, and whoever of the
            # two takes the id last has it.
            self._born = _fork.generation
            self._let_go()
            if self._is_unique:
                self.instance_id = as_instance_id(None)

    async def aclose(self) -> None:
        """End a session begun from a URL; a client that was passed in goes on."""
        if self._owns_link:
            await self._link.aclose()
