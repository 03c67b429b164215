"""A Valkey Cluster, joined together without the redis-cli program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, Final

from ._process import HOST, Group, free_port, wait_until
from ._resp import Reply, RespError
from .valkey import MARK, ValkeyServer

SLOTS: Final = 16_384
NODE_TIMEOUT_MS: Final = 500  # silence after which a node counts as failed
FORMING_DEADLINE: Final = 30.0  # seconds; two of them pass in every start, by the server's design


class ValkeyCluster(Group):
    """Three masters, each with a replica if asked for; a context manager.

    Attributes:
        masters: the nodes that were masters at the start.
        replicas: ``replicas[i]`` follows ``masters[i]`` at the start; empty without replicas.
    """

    def __init__(
        self, *, replicas: bool = False, server: type[ValkeyServer] = ValkeyServer
    ) -> None:
        self._server = server
        super().__init__()
        self._bus: dict[int, int] = {}
        self.masters = [self._node() for _ in range(3)]
        self.replicas = [self._node() for _ in self.masters] if replicas else []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.nodes}>"

    @property
    def nodes(self) -> Sequence[ValkeyServer]:
        """All nodes, dead ones included."""
        return [*self.masters, *self.replicas]

    @property
    def servers(self) -> Sequence[ValkeyServer]:
        """All nodes."""
        return self.nodes

    @property
    def url(self) -> str:
        """A redis+cluster:// URL that names every node."""
        hosts = ",".join(f"{node.host}:{node.port}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    def owner(self, key: str) -> ValkeyServer:
        """The living master that serves the key's slot by its own word.

        Others may not have heard yet that it took over.
        """
        for node in self.nodes:
            if node.running and self._serves(node, key):
                return node
        raise LookupError(f"no living node serves the slot of {key}")

    def _serves(self, node: ValkeyServer, key: str) -> bool:
        slot: Any = node.call("CLUSTER", "KEYSLOT", key)
        ranges: Any = node.call("CLUSTER", "SLOTS")
        return any(
            first <= slot <= last and master[1] == node.port for first, last, master, *_ in ranges
        )

    def begin(self, stack: ExitStack) -> None:
        """Start all, and leave to the stack how they end."""
        for node in self.nodes:
            stack.enter_context(node)
        self._form()

    def _node(self) -> ValkeyServer:
        # Given, because the default is the port + 10,000, which may be taken.
        bus = free_port()
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
        options += ["--cluster-port", str(bus), "--repl-diskless-sync-delay", "0"]
        node = self._server(*options)
        self._bus[node.port] = bus
        return node

    def _form(self) -> None:
        bounds = [SLOTS * i // len(self.masters) for i in range(len(self.masters) + 1)]
        for node, (first, end) in zip(self.masters, pairwise(bounds), strict=True):
            node.call("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for epoch, node in enumerate(self.nodes, start=1):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        first_node, *others = self.nodes
        for node in others:
            first_node.call("CLUSTER", "MEET", HOST, node.port, self._bus[node.port])
        wait_until(
            lambda: all(self._knows(node, len(self.nodes)) for node in self.nodes),
            "every cluster node knows every other",
            deadline=FORMING_DEADLINE,
        )
        for replica, master in zip(self.replicas, self.masters, strict=False):
            replica.call("CLUSTER", "REPLICATE", _text(master.call("CLUSTER", "MYID")))
        wait_until(
            lambda: all(map(self._in_service, self.nodes)),
            "the cluster serves all slots",
            deadline=FORMING_DEADLINE,
        )
        self.owner(MARK[1]).call(*MARK)

    @staticmethod
    def _knows(node: ValkeyServer, count: int) -> bool:
        lines = _text(node.call("CLUSTER", "NODES")).splitlines()
        return len(lines) == count and not any("handshake" in line for line in lines)

    def _in_service(self, node: ValkeyServer) -> bool:
        try:
            state = _text(node.call("CLUSTER", "INFO"))
            nodes = _text(node.call("CLUSTER", "NODES"))
            replication = _text(node.call("INFO", "replication"))
        except (OSError, RespError):
            return False
        # A node that did not hear yet that another became a replica would not vote for it.
        followers = sum("slave" in line.split()[2] for line in nodes.splitlines())
        linked = node in self.masters or "master_link_status:up" in replication
        return "cluster_state:ok" in state and followers == len(self.replicas) and linked


def _text(reply: Reply) -> str:
    assert isinstance(reply, str)
    return reply
