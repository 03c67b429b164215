"""Counts and times the server's requests: HTTP by route, RESP by command."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from ..integrations.metrics import BUCKETS, MACHINE_ID, READ, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from starlette.types import Scope

    from ..integrations.metrics import Where

__all__ = (
    "ACCESS",
    "BY_NAME",
    "COMMANDS",
    "COMMAND_DURATION",
    "SERVED",
    "Figures",
    "Meters",
    "merged",
)

K = TypeVar("K")

Figures: TypeAlias = "dict[Metric, dict[Where, Any]]"
"""The series of each metric; for a histogram, the counts of its buckets and the sum."""

ACCESS: Final = "aiocosid.access"
"""The key in a request's scope for what its sender may do, once known."""

ROUTE: Final = ("aiocosid.dialect", "aiocosid.route")


def _metric(
    kind: Literal["counter", "gauge", "histogram"],
    name: str,
    unit: str,
    description: str,
    attributes: tuple[str, ...] = (),
    *,
    merge: Callable[[float, float], float] = add,
) -> Metric:
    return Metric(kind, f"aiocosid.server.{name}", unit, description, attributes, merge)


_counter, _histogram = partial(_metric, "counter"), partial(_metric, "histogram")
_gauge = partial(_metric, "gauge")

TOKEN, STATUS, COMMAND = "aiocosid.token", "aiocosid.status", "aiocosid.command"

REQUESTS: Final = _counter(
    "requests", "{request}", "Requests that were answered.", (*ROUTE, TOKEN, STATUS)
)
DURATION: Final = _histogram("duration", "s", "How long a request took.", ROUTE)
COMMANDS: Final = _counter(
    "commands", "{command}", "RESP commands that were answered.", (COMMAND, TOKEN, STATUS)
)
COMMAND_DURATION: Final = _histogram(
    "commands.duration", "s", "How long a RESP command took.", (COMMAND,)
)
REFUSED: Final = _counter(
    *("tokens.refused", "{request}"),
    "Requests that needed a token, and had no valid one.",
    ("reason",),
)
OVER_QUOTA: Final = _counter(
    *("quotas.refused", "{request}"),
    "Requests and commands that a token's quota has refused.",
    (TOKEN,),
)
CONNECTIONS: Final = _gauge("connections", "{connection}", "Connections that are open.")
STORE_CALLS: Final = _counter(
    "store.calls", "{call}", "Calls to the store that add to a counter for a request."
)
STORE_FAILURES: Final = _counter(
    "store.failures", "{call}", "Calls to the store that failed to add to a counter."
)
STORE_TIME: Final = _counter(
    "store.time", "s", "How long all calls that add to a counter have taken together."
)
STORE_UP: Final = _gauge("store.up", "", "Whether every store answers: 1 or 0.", merge=min)
PROCESSES: Final = _gauge("processes", "{process}", "Processes that serve.")

SERVED: Final = (
    *(REQUESTS, DURATION, COMMANDS, COMMAND_DURATION, REFUSED, OVER_QUOTA, CONNECTIONS),
    *(STORE_CALLS, STORE_FAILURES, STORE_TIME, STORE_UP, PROCESSES),
)
"""Metrics of the service itself."""

BY_NAME: Final = {metric.name: metric for metric in (*READ, *SERVED)}

NO_BUCKETS: Final = (0,) * (len(BUCKETS) + 1)

OTHER: Final = "other"
"""The label of unknown commands, because the client chose their names."""


class Meters:
    """The counts of requests of one process.

    Attributes:
        routes: the dialect and the path of each endpoint.
        connections: the open connections.
    """

    __slots__ = ("_cells", "_commands", "connections", "routes")

    def __init__(self) -> None:
        self.routes: Mapping[Any, tuple[str, str]] = {}
        self.connections: Collection[object] = ()
        # For each endpoint, token and status: how many requests fell into each bucket, and their
        # seconds.
        self._cells: dict[tuple[Any, str, int], list[float]] = {}
        # The same for each command, token and status.
        self._commands: dict[tuple[bytes, str, bytes], list[float]] = {}

    def note(self, scope: Scope, status: int, took: float) -> None:
        """Count a request that was answered.

        Args:
            scope: the request's scope.
            status: the status of the answer.
            took: seconds that the request took.
        """
        access = scope.get(ACCESS)
        token = None if access is None else access.token
        key = scope.get("endpoint"), "" if token is None else token.name, status
        _count(self._cells, key, took)

    def note_commands(
        self, name: bytes, token: str, status: bytes, took: float, count: int = 1
    ) -> None:
        """Count RESP commands that were answered in the same way at the same time.

        Args:
            name: the command's name in capitals; empty if the server has no such command.
            token: the name of the token that the client showed, or empty.
            status: ``OK``, or the code of the error.
            took: seconds that each command took.
            count: how many commands.
        """
        _count(self._commands, (name, token, status), took, count)

    def figures(self) -> Figures:
        """Return the counts."""
        requests: dict[Where, Any] = {}
        durations: dict[Where, Any] = {}
        for (endpoint, token, status), cell in self._cells.items():
            route = self.routes.get(endpoint, ("", ""))
            where = *route, token, str(status)
            requests[where] = requests.get(where, 0) + sum(cell[:-1])
            durations[route] = _summed(durations.get(route), cell)
        commands: dict[Where, Any] = {}
        times: dict[Where, Any] = {}
        for (word, token, code), cell in self._commands.items():
            name = word.decode() or OTHER
            commands[name, token, code.decode()] = sum(cell[:-1])
            times[name,] = _summed(times.get((name,)), cell)
        return {
            REQUESTS: requests,
            DURATION: durations,
            COMMANDS: commands,
            COMMAND_DURATION: times,
            CONNECTIONS: {(): len(self.connections)},
            PROCESSES: {(): 1},
        }


def _count(cells: dict[K, list[float]], key: K, took: float, count: int = 1) -> None:
    cell = cells.get(key)
    if cell is None:
        cell = cells[key] = [*NO_BUCKETS, 0.0]
    cell[bisect_left(BUCKETS, took)] += count
    cell[-1] += took * count


def _summed(one: list[float] | None, other: list[float]) -> list[float]:
    return [*other] if one is None else [*map(add, one, other)]


def merged(processes: Iterable[tuple[int, bool, Figures]]) -> Figures:
    """Return the figures of all a server's processes; ended processes keep only their counts.

    Each process has its own machine id, so the series of machine ids name their process.

    Args:
        processes: each process's number, whether it runs, and its figures.
    """
    found: Figures = {}
    for number, is_running, figures in processes:
        for metric, series in figures.items():
            if metric.kind == "gauge" and not is_running:
                continue
            into = found.setdefault(metric, {})
            merge: Any = _summed if metric.kind == "histogram" else metric.merge
            for labels, value in series.items():
                where = (*labels, str(number)) if metric is MACHINE_ID else labels
                into[where] = merge(into[where], value) if where in into else value
    return found
