"""Real servers, each in a process of its own on loopback, and a proxy that fails on demand."""

from ._process import HOST, Server, ServerMissingError, ServerStartError, free_port, wait_until
from ._waiting import eventually
from .cluster import ValkeyCluster
from .pgbouncer import PgBouncerServer
from .postgres import EXECUTED, GUEST, GUEST_PASSWORD, PostgresServer
from .proxy import FaultProxy
from .redis import RedisServer
from .sentinel import ValkeySentinel
from .standby import PostgresPair, PostgresStandby
from .valkey import PASSWORD, READER, ValkeyServer

__all__ = (
    "EXECUTED",
    "GUEST",
    "GUEST_PASSWORD",
    "HOST",
    "PASSWORD",
    "READER",
    "FaultProxy",
    "PgBouncerServer",
    "PostgresPair",
    "PostgresServer",
    "PostgresStandby",
    "RedisServer",
    "Server",
    "ServerMissingError",
    "ServerStartError",
    "ValkeyCluster",
    "ValkeySentinel",
    "ValkeyServer",
    "eventually",
    "free_port",
    "wait_until",
)
