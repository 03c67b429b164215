"""Hands out machine ids from Redis or Valkey, beside CosId's own processes."""

from __future__ import annotations

import secrets
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self

from ... import _fork
from ..._instance_id import as_instance_id
from ..._uncopied import Uncopied
from ...abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    InstanceId,
    Machine,
    MachineGrant,
    MachineIdDistributor,
)
from ...abc._ids import check_integer, check_text
from ...abc._machine import NAME_WIDTH, bits_in_use, check_machine_bits, check_same_bits
from ...errors import (
    ForkedError,
    InvalidArgumentError,
    MachineIdLostError,
    MachineIdOverflowError,
)
from ._errors import STORE, translated
from ._link import BorrowedLink, Link, OwnedLink
from ._machine_scripts import (
    BITS,
    DISTRIBUTE,
    GUARD,
    LIST,
    PREFIX,
    REVERT,
    MachineKeys,
    ask,
    text_of,
)
from ._scripts import UNDECODED

if TYPE_CHECKING:
    from ._link import RedisClient
    from ._scripts import Script

__all__ = ("RedisMachineIdDistributor", "machine_bits", "machines", "revert_machine")

MAX_MS: Final = 2**53 - 1  # what a number of Lua holds exactly
MAX_MACHINE_ID: Final = 2**31 - 1
BATCH: Final = 500  # keys looked at in one step of a scan
COLUMNS: Final = 5  # texts that the listing has for a machine id
TOKEN_BYTES: Final = 8


class RedisMachineIdDistributor(Uncopied, MachineIdDistributor):
    """The machine ids of one namespace on Redis or Valkey, under CosId's own keys.

    ``cosid:{<namespace>}:itc_idx``, ``:adder`` and ``:revert`` are CosId's; beside them lie
    ``:mark``, ``:stable``, ``:token``, ``:seen`` and ``:bits``, of which CosId knows nothing.

    Runs on asyncio.  Each call is one script, which may be applied twice by a driver that resends.

    Ids expire by the server's clock: when neither the owner's last stamp nor the server's own note
    of its last sign of life is younger than the safe guard.  A server that loses its last writes
    may hand one out again.
    """

    __slots__ = ("_born", "_is_unique", "_keys", "_link", "_owns_link", "_token")

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
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, loading or failing over.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the connections are the parent's.
        """
        size = check_machine_bits(bits)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("latest_ms", latest_ms, at_least=-1)
        guard = b"" if self.safe_guard == inf else round(self.safe_guard * 1000)
        stable = int(self.instance_id.stable)
        token = secrets.token_hex(TOKEN_BYTES).encode()
        facts = (stable, size - 1, now_ms, latest_ms, guard, token)
        found, answer = await self._ask(DISTRIBUTE, *facts)
        if found == "width":
            check_same_bits(self.namespace, bits, int(answer[0]))
        if found == "full":
            raise MachineIdOverflowError(self.namespace, size=size, holders=tuple(answer))
        machine_id, floor_ms = (int(each) for each in answer)
        self._token = token
        return MachineGrant(machine_id, floor_ms)

    async def guard(self, machine_id: int, *, now_ms: int, mark_ms: int) -> None:
        """Give a sign of life; see `aiocosid.abc.MachineIdDistributor.guard`.

        Raises:
            MachineIdLostError: somebody else holds the id, or nobody, or the same instance in
                another process; nothing was written.
            InvalidArgumentError: an argument is outside its range; nothing was sent.
            CorruptMachineStateError: an entry is damaged; nothing was written.
            StoreUnavailableError: the server cannot be reached, is silent, loading or failing over.
            StoreAuthenticationError: the server rejects the user, the password or the rights.
            ForkedError: the connections are the parent's.
        """
        check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
        check_integer("now_ms", now_ms, at_least=0, at_most=MAX_MS)
        check_integer("mark_ms", mark_ms, at_least=-1, at_most=MAX_MS)
        found, answer = await self._ask(GUARD, machine_id, now_ms, mark_ms, self._token)
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
            self._born, self._token = _fork.generation, b""
            if self._is_unique:
                self.instance_id = as_instance_id(None)

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        if self._owns_link:
            await self._link.aclose()


async def machines(link: Link, namespace: str | None) -> list[Machine]:
    """Return the machine ids of a namespace, or of all on the server, by namespace and number."""
    if namespace is None:
        with translated():
            namespaces = await link.call(_namespaces, may_last=True)
    else:
        check_text("namespace", namespace, at_most=NAME_WIDTH)
        namespaces = {namespace}
    return [each for name in sorted(namespaces) for each in await _machines(link, name)]


async def _namespaces(client: Any) -> set[str]:  # noqa: ANN401 - the driver's
    # On a cluster the driver goes through all masters.
    keys = client.scan_iter(match=f"{PREFIX}*}}:*", count=BATCH, **UNDECODED)
    names = {MachineKeys.namespace_of(text_of(key)) async for key in keys}
    return {name for name in names if name is not None}


async def _machines(link: Link, namespace: str) -> list[Machine]:
    _, texts = await ask(link, LIST, MachineKeys(namespace))
    rows = (texts[start : start + COLUMNS] for start in range(0, len(texts), COLUMNS))
    found = [
        Machine(
            namespace=namespace,
            machine_id=int(machine_id),
            instance_id=instance_id,
            last_timestamp_ms=int(stamp),
            mark_ms=int(mark),
            stable=stable == "1",
        )
        for machine_id, instance_id, stamp, mark, stable in rows
    ]
    return sorted(found, key=lambda each: each.machine_id)


async def revert_machine(link: Link, namespace: str, machine_id: int) -> None:
    """Take a machine id from its owner; one who took it in the meantime keeps it.

    Raises:
        InvalidArgumentError: nobody holds it.
        StoreError: the server refuses or cannot be reached.
    """
    check_text("namespace", namespace, at_most=NAME_WIDTH)
    check_integer("machine_id", machine_id, at_least=0, at_most=MAX_MACHINE_ID)
    holders = [
        each.instance_id
        for each in await _machines(link, namespace)
        if each.machine_id == machine_id and each.instance_id
    ]
    if not holders:
        expected = f"one that somebody holds in namespace {namespace!r}"
        raise InvalidArgumentError("machine_id", machine_id, expected=expected)
    for holder in holders:
        await ask(link, REVERT, MachineKeys(namespace), holder.encode(), machine_id, -1, 0, b"")


async def machine_bits(link: Link, namespace: str, *, change_to: int | None = None) -> int | None:
    """Return the width that is noted, None if there is none; change it first if that is asked for.

    Raises:
        MachineIdInUseError: it is to be changed, and somebody holds a machine id.
        InvalidArgumentError: an argument is outside its range.
        CorruptMachineStateError: the note is damaged; nothing was written.
        StoreError: the server refuses or cannot be reached.
    """
    check_text("namespace", namespace, at_most=NAME_WIDTH)
    if change_to is not None:
        check_machine_bits(change_to)
    wanted = b"" if change_to is None else change_to
    found, answer = await ask(link, BITS, MachineKeys(namespace), wanted)
    noted, *holders = answer
    bits = int(noted) if noted else None
    if found == "held":
        raise bits_in_use(namespace, bits, holders)
    return bits
