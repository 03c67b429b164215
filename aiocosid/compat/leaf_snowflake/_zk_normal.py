"""Leaf's own registry: one persistent node for each address, whose number is the worker id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ...errors import LeafWorkerIdsUsedUpError
from ...stores.zookeeper.tree import ANY, OwnedLink, as_link, create, create_numbered, write
from .._worker_ids import Entry, WorkerIdStore, claim_stamp
from ._address import NAMED, WHY, LeafAddress
from ._zk import LeafNodes, as_json, payload, time_of

if TYPE_CHECKING:
    from ...stores.zookeeper.tree import Node, Nodes

__all__ = ("LeafZkNormalStore",)

_CHILD: Final = re.compile(r"(?P<address>.+)-(?P<number>[0-9]{10})")


class _Forever(LeafNodes):
    """``/snowflake/{leaf.name}/forever``: nodes ``{ip}:{port}-{worker id}``."""

    async def find(self, at: Nodes, bits: int, now_ms: int, latest_ms: int) -> Entry | None:  # noqa: ARG002 - there is no other
        children = _numbered(await at.children(self.folder))
        if not children and not await self._found(at):
            return None
        own = [number for number, address in children if address == str(self.address)]
        if not own:
            return await self._make(at, bits, now_ms)
        if own[0] >> bits:
            raise await self._used_up(at, bits, own[0])
        return await self.read(at, own[0])

    async def _found(self, at: Nodes) -> bool:
        """Make the registry where there is none, with its number 0 gone; False to look again."""
        if (await at.get(self.folder))[0] is not None:
            return True
        await at.ensure(self.namespace)
        spare = f"{self.folder}/0"
        await at.commit(create(self.folder, b""), create(spare, b""), ("delete", spare, (ANY,)))
        return False

    async def _make(self, at: Nodes, bits: int, now_ms: int) -> Entry:
        """Make our node, claimed; one whose answer is lost is found by the next attempt."""
        path, data = f"{self.folder}/{self.address}-", self._written(claim_stamp(-1, now_ms))
        number = int((await create_numbered(at, path, data))[-10:])
        if number >> bits:
            await at.commit(("delete", self._path(number), (ANY,)))  # it is nobody's number
            raise await self._used_up(at, bits, number)
        return Entry(worker_id=number, owner=str(self.address))

    async def _used_up(self, at: Nodes, bits: int, number: int) -> LeafWorkerIdsUsedUpError:
        """Return the error, with three addresses that were silent for longest."""
        children = _numbered(await at.children(self.folder))
        fitting = [each for each in children if not each[0] >> bits]
        paths = [f"{self.folder}/{address}-{number:010}" for number, address in fitting]
        read = zip(fitting, await at.get(*paths), strict=True)
        silent = sorted((node.changed, address) for (_, address), node in read if node is not None)
        holders = tuple(address for _, address in silent[:3])
        about = {"worker_id": number, "bits": bits}
        return LeafWorkerIdsUsedUpError(self.namespace, **about, holders=holders)

    def _path(self, worker_id: int) -> str:
        return f"{self.folder}/{self.address}-{worker_id:010}"

    async def read(self, at: Nodes, worker_id: int) -> Entry | None:
        path = self._path(worker_id)
        (node,) = await at.get(path)
        if node is None:
            return None
        found = time_of(path, payload(path, node.data).get("timestamp"))
        return Entry(worker_id=worker_id, stamp=found, owner=str(self.address), about=node)

    async def write(self, at: Nodes, entry: Entry, new: int) -> bool:
        node: Node | None = entry.about  # none where it was made with its claim
        change = write(self._path(entry.worker_id), self._written(new), node)
        return node is None or await at.commit(change) is not None

    def _written(self, stamp: int) -> bytes:
        return as_json(ip=self.address.ip, port=self.address.port, timestamp=stamp)


class LeafZkNormalStore(WorkerIdStore):
    """The worker id of an address in ``/snowflake/{leaf.name}/forever``, for good.

    Runs on asyncio.  The node is Leaf's: ``{ip}:{port}-{10 digits}``, which are the worker id, with
    ``{"ip":...,"port":...,"timestamp":...}``.  An address that has one keeps it.  Leaf nodes may
    run beside, each on an address of its own.

    The timestamp is raised every 3 s to the time up to which ids may be issued.  The next process
    of the address always waits for it: there is no local file instead.

    If several Leaf nodes start at once on an empty registry, all take number 0, whatever their
    nodes contain.  So aiocosid never creates a node with that number.
    """

    scheme = "leaf-zk-normal"
    options = NAMED
    why = WHY
    _connect = OwnedLink

    def __init__(self, client: Any, *, name: str, ip: str, port: int | str) -> None:  # noqa: ANN401 - the driver has no types
        """Use your own client, which is never stopped here; nothing is sent yet.

        Args:
            client: your own ``kazoo.client.KazooClient``, started.
            name: Leaf's ``leaf.name``.
            ip: this process's address, at most 94 characters; none is guessed.  Any text that no
                other process uses, such as a pod's stable name, works as well.
            port: this process's, 1 to 65535; Leaf's ``leaf.snowflake.port``.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is none of
                kazoo's.
        """
        self._on(_Forever(as_link(client), name, LeafAddress.of(ip, port), "forever"))


def _numbered(children: list[str]) -> list[tuple[int, str]]:
    """Return number and address of each node, by number; the address may have dashes."""
    found = (_CHILD.fullmatch(child) for child in children)
    return sorted((int(match["number"]), match["address"]) for match in found if match)
