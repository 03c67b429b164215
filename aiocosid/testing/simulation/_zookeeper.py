"""ZooKeeper in the world: an ensemble, its tree and its sessions."""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ._clock import START_NS
from ._faults import draw_between
from ._grants import noted_by_transaction
from ._zookeeper_tree import EMPTY, Changing, Nodes, is_reading, read

if TYPE_CHECKING:
    from ._faults import Faults
    from ._grants import Noted
    from ._node import Node
    from ._process import Process
    from ._world import World
    from ._zookeeper_client import Connection, Line

__all__ = ("Session", "SimulatedZooKeeper")

NAME: Final = "zookeeper"
LAG: Final = (0.001, 1.0)  # seconds that a follower is behind the leader
IN_STEP: Final = 0.5  # share of the connections that go to a server that is not behind


class Session:
    """A session, as the servers know it.

    Attributes:
        number: its id.
        timeout: seconds.
        ends: when it ends, if nothing is heard of it.
        line: the connection on which it is.
        lag: seconds that the server there is behind.
        seen: the tree that it has seen, as a place in the history.
    """

    __slots__ = ("ends", "lag", "line", "number", "seen", "timeout")

    def __init__(self, number: int, timeout: float) -> None:
        self.number = number
        self.timeout = timeout
        self.ends = inf
        self.line: Line | None = None
        self.lag = 0.0
        self.seen = 0


class SimulatedZooKeeper:
    """A ZooKeeper in virtual time, on which the shipped distributors run.

    It keeps what it has confirmed.  Writes are done in one order; a server may read what is a
    second old, but never what is older than its session has seen or written.  A session ends when
    nothing was heard of it for its timeout, its ephemeral nodes with it, and its client learns of
    that when it is heard of again.  There are no watches, rights and quotas.
    """

    def __init__(self, world: World) -> None:
        """Start an ensemble with an empty tree.

        Args:
            world: where it runs; its clock is the leader's.
        """
        self.is_up = True
        self.connections: list[Connection] = []
        self._world = world
        self._zxid = 0
        self._number = 0  # of the last session
        self._sessions: dict[int, Session] = {}
        self._times = [0.0]
        self._trees: list[Nodes] = [EMPTY]
        self._calls: set[str] = set()  # that were handed a machine id

    # For nodes.

    def client(
        self, node: Node, *, faults: Faults | None = None, session_timeout: float = 4.0
    ) -> Any:  # noqa: ANN401 - the driver has no types
        """Return a client for the process that runs on a node, on a link of its own, and started.

        It is kazoo's, up to where it would write to a socket: callbacks run in virtual time.  What
        the link loses is lost with the connection, and what was sent later; the driver sends
        nothing again.

        Args:
            node: where it is used.
            faults: what may go wrong on the link; the node's by default.  Of them ``resend`` and
                ``timeout`` mean nothing here.
            session_timeout: seconds.

        Raises:
            MissingExtraError: kazoo is not installed.
        """
        from ._zookeeper_client import Connection, kazoo  # noqa: PLC0415 - needs the driver

        client = kazoo(session_timeout)
        client._connection = connection = Connection(self, node, node.link(faults), client)
        self.connections.append(connection)
        connection.start()
        return client

    def operator(self) -> Any:  # noqa: ANN401 - the driver has no types
        """Return a client for the scenario: what it asks is answered at once.

        Raises:
            MissingExtraError: kazoo is not installed.
        """
        from ._zookeeper_client import Direct, kazoo  # noqa: PLC0415 - needs the driver

        client = kazoo(1e6)
        client._connection = Direct(self, client)
        return client

    # For their clients.

    def connect(self, number: int, timeout: float, line: Line) -> Session | None:
        """Begin a session, or go on with one; None if it has ended.

        Args:
            number: which one; 0 for a new one.
            timeout: seconds.
            line: the connection.

        Raises:
            ConnectionRefusedError: no server answers.
        """
        self._bury_sessions()
        if not self.is_up:
            raise ConnectionRefusedError(f"{NAME} does not run")
        if number and number not in self._sessions:
            return None
        if not number:
            self._number = number = self._number + 1
            self._sessions[number] = Session(number, timeout)
            self._zxid += 1
        session, rng = self._sessions[number], self._world.rng
        session.line, session.ends = line, self._world.time + session.timeout
        session.lag = 0.0 if rng.random() < IN_STEP else draw_between(rng, LAG)
        return session

    def serve(self, line: Line, request: Any, process: Process | None, *, is_heard: bool) -> object:  # noqa: ANN401 - the driver's
        """Answer a request that has arrived.

        Args:
            line: the connection.
            request: the driver's; None for a sign of life.
            process: who has sent it; None for the scenario.
            is_heard: whether it listens to that connection still.

        Raises:
            RefusedError: the answer is an error.
            ConnectionRefusedError: the server hangs up.
        """
        self._bury_sessions()
        session = self._sessions.get(line.number)
        if not self.is_up or session is None or session.line is not line:
            raise ConnectionRefusedError("the connection was closed")
        session.ends = self._world.time + session.timeout
        if request is None:
            return None
        if is_reading(request):
            return read(self._seen_by(session), request)
        try:
            answer, noted = self._change(session, request)
        finally:
            session.seen = len(self._trees) - 1
        if process is not None:
            self._tell(noted, process, is_heard=is_heard)
        return answer

    def _seen_by(self, session: Session) -> Nodes:
        known = bisect_right(self._times, self._world.time - session.lag) - 1
        session.seen = max(session.seen, known)
        return self._trees[session.seen]

    def _change(self, session: Session, request: Any) -> tuple[object, list[Noted]]:  # noqa: ANN401 - the driver's
        before, changing = self._trees[-1], self._begin(session.number)
        if type(request).__name__ != "Transaction":
            answer = changing.run(request)
            self._commit(changing)
            return answer, []
        answers, is_done = changing.run_all(request.operations)
        if not is_done:
            return answers, []
        self._commit(changing)
        return answers, list(noted_by_transaction(before, request.operations))

    def _tell(self, noted: list[Noted], process: Process, *, is_heard: bool) -> None:
        """Tell the ledger of a machine id that was handed out, or of a sign of life."""
        ledger = self._world.ledger
        for namespace, machine_id, floor_ms, stamp_ms, call in noted:
            if call:  # else it is known; one that is known only here is asserted in a quarantine
                floor_ms = stamp_ms - 1 if call in self._calls else floor_ms  # noqa: PLW2901
                ledger.granted(namespace, machine_id, process, floor_ms=floor_ms)
                self._calls.add(call)
            if is_heard:
                ledger.renewed(namespace, machine_id, process, until=inf)

    def _begin(self, session: int) -> Changing:
        self._zxid += 1
        now_ms = START_NS // 10**6 + int(self._world.time * 1000)
        return Changing(self._trees[-1], zxid=self._zxid, now_ms=now_ms, session=session)

    def _commit(self, changing: Changing) -> None:
        self._times.append(self._world.time)
        self._trees.append(changing.nodes)

    def _bury_sessions(self) -> None:
        """End the sessions of which nothing was heard: nobody can have seen that they did not."""
        now = self._world.time
        for session in [each for each in self._sessions.values() if each.ends <= now]:
            self._end(session)

    def _end(self, session: Session) -> None:
        self._world.note(NAME, "ends", f"session {session.number}")
        del self._sessions[session.number]
        changing = self._begin(session.number)
        for path in [path for path, node in changing.nodes.items() if node.owner == session.number]:
            changing.delete(path)
        self._commit(changing)

    # For the scenario.

    @property
    def nodes(self) -> Nodes:
        """What there is, by the paths."""
        return self._trees[-1]

    def stop(self) -> None:
        """Have no leader, so that nobody is answered; sessions do not end meanwhile."""
        self._world.note(NAME, "stops")
        self._bury_sessions()
        self.is_up = False
        for session in self._sessions.values():
            session.ends = inf
        self.drop()

    def start(self) -> None:
        """Elect a leader: all sessions have their whole timeout again."""
        if not self.is_up:
            self._world.note(NAME, "starts")
            self.is_up = True
            for session in self._sessions.values():
                session.ends = self._world.time + session.timeout

    def drop(self, *, share: float = 1.0) -> None:
        """Close connections, as a server does that is restarted; the sessions go on elsewhere.

        Args:
            share: how many of them, from 0 to 1.
        """
        for connection in self.connections:
            if self._world.rng.random() < share:
                connection.hang_up()

    def expire(self) -> None:
        """End one of the sessions, whatever was heard of it."""
        if self._sessions:
            self._end(self._world.rng.choice(list(self._sessions.values())))

    def save(self) -> tuple[Nodes, int]:
        """Return a copy of the data, for `restore`."""
        return self.nodes, self._zxid

    def restore(self, copy: tuple[Nodes, int]) -> None:
        """Put a copy in the place of the data; the sessions are forgotten.

        Args:
            copy: what `save` has returned.
        """
        self._world.note(NAME, "is restored", f"to {copy[1]}, from {self._zxid}")
        nodes, self._zxid = copy
        self._sessions.clear()
        self._times, self._trees = [self._world.time], [nodes]
        self.drop()
