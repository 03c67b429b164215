"""Real servers, each in a process of its own on loopback, and a proxy that fails on demand."""

from ._process import (
    HOST,
    Server,
    ServerMissingError,
    ServerStartError,
    find_program,
    free_port,
    wait_until,
)
from ._shared import alone_on, join_run, leave_run, run_folder, shared
from ._waiting import eventually
from .broker import Broker
from .cluster import ValkeyCluster
from .cosid_proxy import CosIdProxy
from .cosid_service import CosIdService
from .etcd import EtcdEnsemble, EtcdServer
from .mariadb import IS_MYSQL, PROCESSES, MariadbServer
from .nats import NatsCluster, NatsServer
from .pgbouncer import PgBouncerServer
from .postgres import EXECUTED, GUEST, GUEST_PASSWORD, PostgresServer
from .proxy import FaultProxy
from .redis import RedisServer
from .sentinel import ValkeySentinel
from .service import IdService
from .standby import PostgresPair, PostgresStandby
from .valkey import PASSWORD, READER, ValkeyServer
from .zookeeper import ZookeeperEnsemble, ZookeeperServer

__all__ = (
    "EXECUTED",
    "GUEST",
    "GUEST_PASSWORD",
    "HOST",
    "IS_MYSQL",
    "PASSWORD",
    "PROCESSES",
    "READER",
    "Broker",
    "CosIdProxy",
    "CosIdService",
    "EtcdEnsemble",
    "EtcdServer",
    "FaultProxy",
    "IdService",
    "MariadbServer",
    "NatsCluster",
    "NatsServer",
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
    "ZookeeperEnsemble",
    "ZookeeperServer",
    "alone_on",
    "eventually",
    "find_program",
    "free_port",
    "join_run",
    "leave_run",
    "run_folder",
    "shared",
    "wait_until",
)
