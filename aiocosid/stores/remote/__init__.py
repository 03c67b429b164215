"""Counters and machine ids of an aiocosid server, over HTTP or its Unix socket.

The server, or the broker of a single host, is `aiocosid serve`.  HTTP requires the ``http`` extra;
a Unix socket requires the ``redis`` extra.  Runs on asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...abc import DEFAULT_NAMESPACE, Machine, MachineMarker
from .._connection import OwnedConnection
from .._url import AIOCOSID, read_url
from ..base import BackendStore
from ..wire import LABEL
from ._backend import RemoteBackend, Servers
from ._endpoints import endpoints_of
from ._machine import RemoteMachineIdDistributor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...segment.blocks import Block

__all__ = ("RemoteStore",)


class RemoteStore(BackendStore[RemoteBackend]):
    """Counters and machine ids in the store of an aiocosid server.

    The URL may name several servers of one store.  A call goes to the server that answered last,
    and to the next one if that server cannot be reached, does not answer, or is draining.  If the
    answer to a request for a segment is lost, the segment is lost too; it is never granted twice.
    """

    __slots__ = ()

    _machine = RemoteMachineIdDistributor

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use its own connections, opened on first use and closed by `aclose`.

        Args:
            url: ``aiocosid+http://[token@]host:8688[,host2:8688]``, ``aiocosid+https://`` or
                ``aiocosid+unix:///run/aiocosid.sock``.  Options after a ``?``: ``token``, an
                alternative to the token before the host; ``timeout``, seconds for a call on all
                servers together, 1.5 by default; with TLS ``ssl_ca_certs``, ``ssl_certfile``,
                ``ssl_keyfile``.

        Raises:
            InvalidArgumentError: the URL is malformed.
            MissingExtraError: the driver is not installed.
        """
        found = read_url(url, *AIOCOSID)
        make = endpoints_of(found)

        async def connect() -> Servers:
            return Servers(make(), found.options["timeout"])

        connection = OwnedConnection(
            "the connection to the aiocosid server",
            connect=connect,
            disconnect=Servers.aclose,
            silence=Servers.silence,
        )
        return cls._on(RemoteBackend(LABEL, connection, name=f"{found.scheme} {found}"), url)

    async def take_ids(self, name: str, count: int) -> list[range]:
        """Reserve and return ``count`` rising ids of one of the server's generators.

        A cancelled or failed call may have reserved ids, which are then a gap.  `RemoteId` issues
        such ids.

        Args:
            name: the generator's name on the server.
            count: how many, from 1 to the server's limit.

        Raises:
            StoreUnavailableError: no server can be reached or answers in time, or the generator has
                no ids now.
            StoreAuthenticationError: the token is missing, wrong, or does not allow this call.
            InvalidArgumentError: the generator's ids are not rising numbers.
            StoreError: the server has no generator with that name, or refuses.
            ForkedError: the connections belong to the parent process.
            WrongLoopError: the connections are in use on another event loop.
        """
        return [*(await self._backend.take(name, count)).ranges]

    async def take_block(self, name: str, count: int) -> Block:
        """Do the same as `take_ids`, and also return where the ids hold a sharding id, if they do.

        Args:
            name: as for `take_ids`.
            count: as for `take_ids`.

        Raises:
            CosIdError: as `take_ids`.
        """
        return await self._backend.take(name, count)

    # Machine ids.  The server decides about each call.

    async def machines(self, *, namespace: str | None = None) -> Sequence[Machine]:
        """Return the machine ids that the token may see; see `aiocosid.abc.Store.machines`.

        Raises:
            CosIdError: as for every store.
        """
        return await self._backend.ask_values("machines", Machine, namespace=namespace)

    async def machine_markers(self, *, namespace: str | None = None) -> Sequence[MachineMarker]:
        """Return the markers that the token may see; see `aiocosid.abc.Store.machine_markers`.

        Raises:
            CosIdError: as for every store.
        """
        return await self._backend.ask_values("machine_markers", MachineMarker, namespace=namespace)

    async def evict_machine(self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int) -> None:
        """Evict the holder of a machine id; see `aiocosid.abc.Store.evict_machine`.

        Raises:
            CosIdError: as for every store.
        """
        where = {"namespace": namespace, "machine_id": machine_id}
        # If an answer is lost and the call repeated, the next owner keeps the id.
        held = await self._backend.rows("machine_holders", **where)
        await self._backend.call("evict_machine", **where, holders=held)

    async def raise_machine_fence(
        self, *, namespace: str = DEFAULT_NAMESPACE, machine_id: int, above_ms: int
    ) -> bool:
        """Raise the fence of a machine id; see `aiocosid.abc.Store.raise_machine_fence`.

        Raises:
            CosIdError: as for every store.
        """
        where = {"namespace": namespace, "machine_id": machine_id}
        return await self._backend.ask_value(
            "raise_machine_fence", bool, **where, above_ms=above_ms
        )

    async def repair_machines(self, *, namespace: str = DEFAULT_NAMESPACE) -> Sequence[Machine]:
        """Repair machine ids whose times are far ahead; see `aiocosid.abc.Store.repair_machines`.

        Raises:
            CosIdError: as for every store.
        """
        return await self._backend.ask_values("repair_machines", Machine, namespace=namespace)

    async def machine_bits(self, *, namespace: str = DEFAULT_NAMESPACE) -> int | None:
        """Return the width of a namespace; see `aiocosid.abc.Store.machine_bits`.

        Raises:
            CosIdError: as for every store.
        """
        return await self._backend.ask_value("machine_bits", int, namespace=namespace) or None

    async def set_machine_bits(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        bits: int,
        region: int | None = None,
        region_bits: int = 0,
    ) -> None:
        """Change the width of a namespace; see `aiocosid.abc.Store.set_machine_bits`.

        Raises:
            CosIdError: as for every store.
        """
        split = {"region": region, "region_bits": region_bits}
        await self._backend.call("set_machine_bits", namespace=namespace, bits=bits, **split)

    async def is_initialized(self) -> bool:
        """Return whether the server's store has a marker; see `aiocosid.abc.Store.is_initialized`.

        Raises:
            CosIdError: as for every store.
        """
        return await self._backend.ask_value("is_initialized", bool)

    async def initialize(
        self, *, confirm_no_holders: bool = False, after_loss: bool = False
    ) -> None:
        """Write the marker of the server's store; see `aiocosid.abc.Store.initialize`.

        Raises:
            CosIdError: as for every store.
        """
        how = {"confirm_no_holders": confirm_no_holders, "after_loss": after_loss}
        await self._backend.call("initialize", **how)

    async def forget_namespace(self, *, namespace: str) -> bool:
        """Forget that a namespace existed; see `aiocosid.abc.Store.forget_namespace`.

        Raises:
            CosIdError: as for every store.
        """
        return await self._backend.ask_value("forget_namespace", bool, namespace=namespace)

    async def initialize_namespace(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        confirm_no_holders: bool = False,
        safe_guard: float | None = None,
    ) -> MachineMarker:
        """Confirm that one namespace is complete; see `aiocosid.abc.Store.initialize_namespace`.

        Raises:
            CosIdError: as for every store.
        """
        how = {"confirm_no_holders": confirm_no_holders, "safe_guard": safe_guard}
        [marker] = await self._backend.ask_values(
            "initialize_namespace", MachineMarker, namespace=namespace, **how
        )
        return marker
