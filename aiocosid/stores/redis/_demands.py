"""What a store demands of its server: replicas confirm each grant, and the settings keep it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...abc.checks import check_integer, check_seconds
from ...errors import StoreUnavailableError
from .._durability import REDIS as RULES
from .._durability import REDIS_SEQUENCES as SEQUENCE_RULES
from .._durability import Findings, findings

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ...abc import ServerInfo
    from .._durability import Durability

__all__ = (
    "DEMANDS",
    "MAX_REPLICAS",
    "REPLICA_TIMEOUT",
    "STORE",
    "Confirmed",
    "Demands",
    "durability_of",
    "evictions_of",
    "facts_of",
)

STORE: Final = "redis"

REPLICA_TIMEOUT: Final = 0.5  # seconds; less than the driver's timeout for a reply, 1.5 s
MAX_REPLICAS: Final = 1000

DEMANDS: Final = ("replicas", "replica_timeout", "durability")  # options in a URL

_REFUSALS: Final = {"NoPermissionError", "ResponseError"}


@dataclass(frozen=True, slots=True)
class Demands:
    """What a store demands of its server.

    Attributes:
        replicas: how many replicas must confirm each grant; 0 for none.
        replica_timeout: seconds to wait for the replicas.
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

    WAIT counts the replicas that have the writes of its own connection, so both commands are sent
    together, and the driver may resend both or neither.  Errors are handled here: otherwise a
    cluster's pipeline would resend only the failed command, the WAIT, on another connection.
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
            StoreUnavailableError: too few replicas confirmed the write in time; it is not undone.
        """
        reply, confirmed = await self._send(command, options)
        if self._is_cluster and _is_a(reply, "MovedError"):  # nothing was written
            await self._client.nodes_manager.initialize()
            reply, confirmed = await self._send(command, options)
        if self._is_cluster and _is_a(reply, "AskError"):  # the key has already moved
            node = self._client.get_node(host=reply.host, port=reply.port)
            reply, confirmed = await self._send(command, options, asked=node)
        if self._is_cluster and _is_a(reply, "MovedError", "AskError"):
            raise StoreUnavailableError(STORE, f"the slots of the cluster are moving: {reply}")
        for each in (reply, confirmed):
            if isinstance(each, Exception):
                raise each
        if reply is None or reply == b"":  # the counter does not exist; nothing was written
            return reply
        asked, seconds = self._demands.replicas, self._demands.replica_timeout
        if confirmed < asked:
            few = f"{confirmed} of {asked} replicas confirmed a grant within {seconds:g} s"
            remedy = "try again, and check the replicas if the error persists"
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


async def facts_of(client: Any, key: bytes) -> ServerInfo:  # noqa: ANN401 - the driver's
    """Return what the server of a key reports about itself, which may be nothing."""
    info = await _unless_refused(_asked(client, key, "INFO"))
    told = _settings(info) | await _unless_refused(_asked(client, key, "CONFIG GET", _LOG))
    # Valkey also reports the version of Redis with which it is compatible.
    names = {"Valkey": "valkey_version", "Redis": "redis_version"}
    version = next((f"{name} {info[key]}" for name, key in names.items() if key in info), "")
    return findings(RULES, told.items()).facts(version)


async def durability_of(client: Any, key: bytes) -> Findings:  # noqa: ANN401 - the driver's
    """Return whether the server of a key is known to keep what it grants."""
    facts = await facts_of(client, key)
    return Findings(tuple(facts.durability_warnings or ()), tuple(facts.unproved))


async def evictions_of(client: Any, key: bytes) -> Findings:  # noqa: ANN401 - the driver's
    """Return whether the server may evict the expiring counter of a second."""
    told = _settings(await _asked(client, key, "INFO", "memory"))
    return findings(SEQUENCE_RULES, told.items())


# One command reads all settings of the append-only file: appendonly, appendfsync,
# no-appendfsync-on-rewrite, aof-load-truncated.  Redis 6 accepts only one pattern.
_LOG: Final = "*a[po][pf]*"


def _settings(info: Any) -> dict[str, Any]:  # noqa: ANN401 - the driver's
    """Return the settings that are shown to a user who may not read the configuration."""
    told: dict[str, Any] = {}
    if "maxmemory_policy" in info:
        told["maxmemory-policy"] = info["maxmemory_policy"]
        told["maxmemory"] = "set" if info.get("maxmemory") else "0"
    if "aof_enabled" in info:
        told["appendonly"] = "yes" if info["aof_enabled"] else "no"
    return told


async def _unless_refused(asked: Awaitable[Any]) -> Any:  # noqa: ANN401 - the driver's
    try:
        return await asked
    except Exception as exc:
        if type(exc).__name__ not in _REFUSALS:
            raise
        return {}


async def _asked(client: Any, key: bytes, *command: str) -> Any:  # noqa: ANN401 - the driver's
    where: dict[str, Any] = {}
    if hasattr(client, "nodes_manager"):
        where["target_nodes"] = client.get_node_from_key(key)
    return await client.execute_command(*command, **where)
