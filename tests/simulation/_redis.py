"""Redis in the world: a master and its replicas, what they lose, and who takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aiocosid.machine.cells import Marker

from ._clock import START_NS
from ._redis_commands import Keyspace, Reply
from ._redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ._faults import Faults
    from ._node import Node
    from ._redis_client import SimulatedRedisClient
    from ._world import World

__all__ = ("Persistence", "SimulatedRedis")

Persistence: TypeAlias = Literal["always", "everysec", "snapshot", "none"]
"""What is on the disk: every write, those of until a second ago, of the last snapshot, nothing."""

SYNC: Final = 1.0  # seconds that AOF everysec may be behind


class SimulatedRedis:
    """A Redis in virtual time, on which the shipped distributors and scripts run.

    Its scripts run in Lua 5.1, for which lupa has to be installed.  It answers as Redis 7 does;
    `tests/stress` holds it to real servers.

    Attributes:
        master: takes the writes of everybody, except in a split.
        replicas: the other servers.
        persistence: what a server that restarts finds on its disk.
    """

    def __init__(
        self, world: World, *, persistence: Persistence = "always", replicas: int = 0
    ) -> None:
        """Start the servers, initialised.

        Args:
            world: where they run; its clock is theirs.
            persistence: what is on a server's disk.
            replicas: how many follow the master.
        """
        self.persistence = persistence
        self._world = world
        names = ("redis", *(f"redis-{each}" for each in range(2, replicas + 2)))
        self.master, *self.replicas = (RedisServer(name, self._now, self._new_id) for name in names)
        self.initialize()
        for replica in self.replicas:
            replica.follow(self.master)
        self._snapshot = world.time
        self._strays: dict[Node, RedisServer] = {}

    # For nodes.

    def client(
        self, node: Node, *, faults: Faults | None = None, denied: Collection[str] = ()
    ) -> SimulatedRedisClient:
        """Return a client for the process that runs on a node, with a link of its own.

        Args:
            node: where it is used.
            faults: what may go wrong on the link; the node's by default.
            denied: commands that its user may not run, in small letters.

        Raises:
            MissingExtraError: redis-py is not installed.
        """
        from ._redis_client import SimulatedRedisClient

        return SimulatedRedisClient(self, node, node.link(faults), denied=denied)

    def serve(self, node: Node, words: Sequence[bytes], *, denied: Collection[str]) -> Reply:
        """Run a command that has arrived, at the server that the node takes for the master.

        Raises:
            RefusedError: the reply is an error.
            ConnectionRefusedError: it does not run.
        """
        server = self._strays.get(node, self.master)
        if not server.is_up:
            raise ConnectionRefusedError(f"{server.name} does not run")
        return server.execute(words, denied=denied)

    # For the scenario.

    def initialize(self) -> None:
        """Let counters begin, as ``aiocosid init`` does; it vouches for no machine id."""
        self.master.execute([b"HSETNX", b"aiocosid:marker", b"store", Marker().text().encode()])

    def save(self) -> None:
        """Take a snapshot."""
        self._world.note(self.master.name, "saves")
        self._snapshot = self._world.time

    def crash(self) -> None:
        """Kill the master; nobody takes over."""
        self._world.note(self.master.name, "dies")
        self.master.is_up = False

    def start(self) -> None:
        """Start the master with what is on its disk; what was not written there is lost."""
        space, now = self.master.space, self._now()
        match self.persistence:
            case "everysec":
                space = space.as_of(now - self._world.rng.uniform(0.0, SYNC))
            case "snapshot":
                space = space.as_of(START_NS / 1e9 + self._snapshot)
            case "none":
                space = Keyspace()
            case _:
                pass  # all of it
        lost = self.master.space.offset - space.offset
        self._world.note(self.master.name, "starts", f"without its last {lost} writes")
        self.master.start(space)

    def restart(self) -> None:
        """Kill the master, and start it at once."""
        self.crash()
        self.start()

    def flush(self) -> None:
        """Somebody says FLUSHALL."""
        self._world.note(self.master.name, "is emptied")
        self.master.execute([b"FLUSHALL"])

    def delete(self, key: str | bytes) -> None:
        """Somebody says DEL."""
        name = key.encode() if isinstance(key, str) else key
        self._world.note(self.master.name, "loses a key", name.decode(errors="replace"))
        self.master.execute([b"DEL", name])

    def fail_over(self, *, behind: int = 0) -> None:
        """Promote a replica; the old master resynchronises with it, and its last writes are lost.

        Done once more, without another replica, the old master is promoted back: under its old
        ``run_id``, and with a ``master_replid`` that nobody has seen.

        Args:
            behind: how many writes the replica has not seen.
        """
        old = self._promote(behind)
        old.is_up = True
        old.follow(self.master)

    def split(self, nodes: Collection[Node], *, behind: int = 0) -> None:
        """Promote a replica, while some nodes go on with the old master, until `rejoin`.

        Args:
            nodes: who does not hear of it.
            behind: how many writes the replica has not seen.
        """
        old = self._promote(behind)
        self._strays = dict.fromkeys(nodes, old)

    def rejoin(self) -> None:
        """End a split: everybody goes to the new master, and the old one follows it."""
        if self._strays:
            self._world.note(self.master.name, "is joined again")
            self._strays = {}
        for replica in self.replicas:
            replica.is_up = True
            replica.follow(self.master)

    def mend(self) -> None:
        """Have the master run, and no split."""
        if not self.master.is_up:
            self.start()
        self.rejoin()

    def _promote(self, behind: int) -> RedisServer:
        old, (new, *others) = self.master, self.replicas
        self._world.note(new.name, "takes over", f"without the last {behind} writes")
        new.follow(old, behind=behind)
        new.promote()
        self.master, self.replicas = new, [*others, old]
        return old

    def _now(self) -> float:
        return START_NS / 1e9 + self._world.time

    def _new_id(self) -> str:
        return f"{self._world.rng.getrandbits(160):040x}"
