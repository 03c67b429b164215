"""Demands on a server: that replicas confirm a grant, and that its settings keep it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...abc import ServerFacts
from ...abc._ids import check_integer, check_seconds
from ...errors import StoreUnavailableError
from ._errors import STORE

if TYPE_CHECKING:
    from .._durability import Durability

__all__ = ("DEMANDS", "MAX_REPLICAS", "REPLICA_TIMEOUT", "Confirmed", "Demands", "weaknesses_of")

REPLICA_TIMEOUT: Final = 0.5  # seconds; below the driver's timeout for a reply, 1.5 s
MAX_REPLICAS: Final = 1000

DEMANDS: Final = ("replicas", "replica_timeout", "durability")  # options of a URL

_REFUSALS: Final = {"NoPermissionError", "ResponseError"}


@dataclass(frozen=True, slots=True)
class Demands:
    """A store's demands on its server.

    Attributes:
        replicas: how many replicas have to confirm each grant; 0 for none.
        replica_timeout: seconds to wait for them.
        durability: what to do about a server that may lose grants.
    """

    replicas: int = 0
    replica_timeout: float = REPLICA_TIMEOUT
    durability: Durability = "warn"

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_integer("replicas", self.replicas, at_least=0, at_most=MAX_REPLICAS)
        check_seconds("replica_timeout", self.replica_timeout)


class Confirmed:
    """Sends each command with a WAIT right after it on the same connection.

    WAIT counts the replicas that have the writes of its own connection.  So both are sent together,
    and the driver may resend both or none.  Errors are handled here: otherwise a cluster's pipeline
    would send a failed command, the WAIT alone, again on another connection.
    """

    __slots__ = ("_client", "_demands", "_is_cluster", "_key")

    def __init__(self, client: Any, key: bytes, demands: Demands) -> None:  # noqa: ANN401 - the driver's
        self._client = client
        self._is_cluster = hasattr(client, "nodes_manager")
        self._key = key
        self._demands = demands

    async def execute_command(self, *command: Any, **options: Any) -> Any:  # noqa: ANN401 - the driver's
        """Send one command that writes the key, and return its reply.

        Raises:
            StoreUnavailableError: too few replicas have confirmed it in time; the write stays.
        """
        reply, confirmed = await self._send(command, options)
        if self._is_cluster and _is_a(reply, "MovedError"):  # nothing was written
            await self._client.nodes_manager.initialize()
            reply, confirmed = await self._send(command, options)
        if self._is_cluster and _is_a(reply, "AskError"):  # the key has moved already
            node = self._client.get_node(host=reply.host, port=reply.port)
            reply, confirmed = await self._send(command, options, asked=node)
        if self._is_cluster and _is_a(reply, "MovedError", "AskError"):
            raise StoreUnavailableError(STORE, f"the slots of the cluster are moving: {reply}")
        for each in (reply, confirmed):
            if isinstance(each, Exception):
                raise each
        asked, seconds = self._demands.replicas, self._demands.replica_timeout
        if confirmed < asked:
            few = f"{confirmed} of {asked} replicas confirmed a grant within {seconds:g} s"
            remedy = "try again, and check the replicas if it lasts"
            raise StoreUnavailableError(STORE, f"{few}, so its range is a gap", remedy=remedy)
        return reply

    async def _send(
        self,
        command: tuple[Any, ...],
        options: dict[str, Any],
        asked: Any = None,  # noqa: ANN401 - the driver's
    ) -> tuple[Any, Any]:
        wait = "WAIT", self._demands.replicas, max(1, int(self._demands.replica_timeout * 1000))
        where: dict[str, Any] = {}
        how = {"raise_on_error": False}
        if self._is_cluster:
            where["target_nodes"] = asked or self._client.get_node_from_key(self._key)
            how["allow_redirections"] = False
        pipeline = self._client.pipeline(transaction=False)
        if asked is not None:
            pipeline.execute_command("ASKING", **where)
        pipeline.execute_command(*command, **where, **options)
        pipeline.execute_command(*wait, **where)
        *_, reply, confirmed = await pipeline.execute(**how)
        return reply, confirmed


def _is_a(reply: object, *names: str) -> bool:
    return type(reply).__name__ in names


async def weaknesses_of(client: Any, key: bytes) -> list[str]:  # noqa: ANN401 - the driver's
    """Return the settings by which the server of a key may lose it; none if it hides them."""
    return list((await facts_of(client, key)).weaknesses or ())


async def facts_of(client: Any, key: bytes) -> ServerFacts:  # noqa: ANN401 - the driver's
    """Return what the server of a key says of itself, which may be nothing."""
    try:
        info = await _info_of(client, key)
    except Exception as exc:
        if type(exc).__name__ not in _REFUSALS:
            raise
        return ServerFacts(version="")
    found: list[str] = []
    if str(info.get("maxmemory_policy", "")).startswith("allkeys") and info.get("maxmemory"):
        found += _eviction(info, "counters may be evicted, and their ids are issued again")
    if info.get("aof_enabled") == 0:
        found.append(
            "appendonly is no: a crash loses the grants since the last snapshot, and "
            "their ids are issued again; set it to yes"
        )
    valkey = info.get("valkey_version")  # which also names the Redis that it is compatible with
    version = f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', '')}"
    return ServerFacts(version=version, weaknesses=tuple(found))


async def evictions_of(client: Any, key: bytes) -> list[str]:  # noqa: ANN401 - the driver's
    """Return whether the server may evict the expiring counter of a second, if it shows that."""
    info = await _info_of(client, key, "memory")
    if str(info.get("maxmemory_policy") or "noeviction") == "noeviction":
        return []
    return _eviction(
        info, "the counter of a second may be evicted, and its sequences are issued again"
    )


async def _info_of(client: Any, key: bytes, *sections: str) -> Any:  # noqa: ANN401 - the driver's
    where: dict[str, Any] = {}
    if hasattr(client, "nodes_manager"):
        where["target_nodes"] = client.get_node_from_key(key)
    return await client.execute_command("INFO", *sections, **where)


def _eviction(info: Any, weakness: str) -> list[str]:  # noqa: ANN401 - the driver's
    return [f"maxmemory-policy is {info['maxmemory_policy']}: {weakness}; set it to noeviction"]
