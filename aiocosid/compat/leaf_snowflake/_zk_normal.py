"""Leaf's own registry: one persistent node for each address, whose number is the worker id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ...errors import LeafWorkerIdsUsedUpError
from ...stores.zookeeper._driver import BadVersionError, NoNodeError
from ...stores.zookeeper._link import as_link
from ...stores.zookeeper._nodes import ANY, create
from ._place import Place
from ._stamped import Entry
from ._stamps import claim
from ._zookeeper import (
    ZookeeperMachineIdDistributor,
    ZookeeperWorkerIdStore,
    as_json,
    payload,
    time_of,
)

if TYPE_CHECKING:
    from ...stores.zookeeper._nodes import Node, Nodes

__all__ = ("LeafZkNormalMachineIdDistributor", "LeafZkNormalStore")

_CHILD: Final = re.compile(r"(?P<place>.+)-(?P<number>[0-9]{10})")


class LeafZkNormalMachineIdDistributor(ZookeeperMachineIdDistributor):
    """The worker id of an address in ``/snowflake/{leaf.name}/forever``, for good.

    Runs on asyncio.  The node is Leaf's: ``{ip}:{port}-{10 digits}``, which are the worker id, with
    ``{"ip":...,"port":...,"timestamp":...}``.  An address that has one keeps it.  Leaf nodes may
    run beside, each on an address of its own.

    The timestamp is raised every 3 s to the time up to which ids may be issued.  Whoever comes next
    under the address waits for it, and there is no way around that: no local file takes its place.

    Several Leaf nodes that start at once where nothing was before all take number 0, whatever their
    nodes say.  So no new node of ours has that number.
    """

    __slots__ = ()

    scheme = "leaf-zk-normal"

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - the driver has no types
        *,
        name: str,
        ip: str,
        port: int | str,
    ) -> None:
        """Describe who asks; nothing is sent yet.

        Args:
            client: your own ``kazoo.client.KazooClient``, which you have started.  It stays yours
                to stop.
            name: Leaf's ``leaf.name``.
            ip: this process's address, at most 94 characters; none is guessed.  Any text that no
                other process goes by, such as a pod's stable name, does as well.
            port: this process's, 1 to 65535; Leaf's ``leaf.snowflake.port``.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is none of
                kazoo's.
        """
        self._describe_on(as_link(client), name, Place.of(ip, port))

    @property
    def _forever(self) -> str:
        return f"{self._root}/forever"

    async def _take(
        self,
        at: Nodes,
        bits: int,
        now_ms: int,
        latest_ms: int,  # noqa: ARG002 - there is no other
    ) -> tuple[Entry, int] | None:
        children = _numbered(await at.children(self._forever))
        if not children and not await self._found(at):
            return None
        own = [number for number, place in children if place == str(self._place)]
        if not own:
            return await self._make(at, bits, now_ms)
        if own[0] >> bits:
            raise await self._used_up(at, bits, own[0])
        entry = await self._read(at, own[0])
        if entry is None:
            return None
        claimed = claim(entry.stamp, now_ms)
        return (entry, claimed) if await self._write(at, entry, claimed) else None

    async def _found(self, at: Nodes) -> bool:
        """Make the registry where there is none, with its number 0 gone; False to look again."""
        if (await at.get(self._forever))[0] is not None:
            return True
        await at.ensure(self._root)
        spare = f"{self._forever}/0"
        await at.commit(create(self._forever, b""), create(spare, b""), ("delete", spare, b"", ANY))
        return False

    async def _make(self, at: Nodes, bits: int, now_ms: int) -> tuple[Entry, int]:
        """Make our node; one whose answer is lost is found by the next attempt."""
        path, claimed = f"{self._forever}/{self._place}-", claim(-1, now_ms)
        (made,) = await at._wire.ask(
            lambda client: client.create_async(
                at._at(path), _written(self._place, claimed), sequence=True
            )
        )
        if isinstance(made, Exception):
            raise made
        number = int(made[-10:])
        if number >> bits:
            await at.commit(("delete", self._path(number), b"", ANY))  # it is nobody's number
            raise await self._used_up(at, bits, number)
        return Entry(worker_id=number, stamp=-1, owner=str(self._place)), claimed

    async def _used_up(self, at: Nodes, bits: int, number: int) -> LeafWorkerIdsUsedUpError:
        """Return the error, with three addresses that were silent for longest."""
        children = _numbered(await at.children(self._forever))
        fitting = [each for each in children if not each[0] >> bits]
        paths = [f"{self._forever}/{place}-{number:010}" for number, place in fitting]
        read = zip(fitting, await at.get(*paths), strict=True)
        silent = sorted((node.changed, place) for (_, place), node in read if node is not None)
        holders = tuple(place for _, place in silent[:3])
        return LeafWorkerIdsUsedUpError(
            self.namespace, worker_id=number, bits=bits, holders=holders
        )

    def _path(self, worker_id: int) -> str:
        return f"{self._forever}/{self._place}-{worker_id:010}"

    async def _read(self, at: Nodes, worker_id: int) -> Entry | None:
        path = self._path(worker_id)
        (node,) = await at.get(path)
        if node is None:
            return None
        found = time_of(path, payload(path, node.data).get("timestamp"))
        return Entry(worker_id=worker_id, stamp=found, owner=str(self._place), about=node)

    async def _write(self, at: Nodes, entry: Entry, new: int) -> bool:
        node: Node = entry.about
        try:
            await at.write(self._path(entry.worker_id), _written(self._place, new), node.version)
        except (BadVersionError, NoNodeError):
            return False
        return True


class LeafZkNormalStore(ZookeeperWorkerIdStore):
    """``/snowflake/{leaf.name}/forever``, as a store of machine ids alone."""

    __slots__ = ()

    distributor = LeafZkNormalMachineIdDistributor


def _written(place: Place, stamp: int) -> bytes:
    return as_json(ip=place.ip, port=place.port, timestamp=stamp)


def _numbered(children: list[str]) -> list[tuple[int, str]]:
    """Return number and address of each node, by number; the address may have dashes."""
    found = (_CHILD.fullmatch(child) for child in children)
    return sorted((int(match["number"]), match["place"]) for match in found if match)
