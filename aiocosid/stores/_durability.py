"""Decides whether a store's settings keep what it has granted.

A backend only asks its server; this module has the safe values, in one table for each server.  Any
other value gives a warning; a value that the server does not tell is unproved.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary, ref

from ..abc import ServerInfo
from ..errors import InvalidArgumentError, StoreError
from ..errors.base import one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = (
    "DEMANDS",
    "ETCD",
    "MYSQL",
    "NATS",
    "POSTGRES",
    "REDIS",
    "REDIS_SEQUENCES",
    "SQLITE",
    "ZOOKEEPER",
    "Durability",
    "DurabilityCheck",
    "Findings",
    "Rule",
    "findings",
)

logger = logging.getLogger("aiocosid")

Durability: TypeAlias = Literal["warn", "refuse", "ignore"]
"""What to do about a store that is not known to keep what it has granted: log its durability
warnings once, refuse to issue ids, or ignore it.
"""

DEMANDS: Final[tuple[Durability, ...]] = ("warn", "refuse", "ignore")


class Rule(NamedTuple):
    """The safe values of one setting.

    Attributes:
        setting: the setting's name; with a ``*`` at the end, every setting with that prefix, if
            any.
        good: the values that lose nothing; with a ``*`` at the end, every value with that prefix.
        loss: what all other values may lose.
        remedy: what to set.
        if_set: the name and values of another setting; without those, this setting does not matter.
        at_least: the lowest number that is safe; all higher numbers are safe too.
    """

    setting: str
    good: tuple[str, ...]
    loss: str
    remedy: str
    if_set: tuple[str, tuple[str, ...]] | None = None
    at_least: int | None = None

    def accepts(self, value: str) -> bool:
        """Return whether a value loses nothing."""
        if self.at_least is not None and value.isdecimal() and int(value) >= self.at_least:
            return True
        return any(_matches(each, value.lower()) for each in self.good)


class Findings(NamedTuple):
    """The findings about a server's settings; it is known to be durable if both are empty.

    Attributes:
        durability_warnings: a text for each setting that may lose grants: its value, what may be
            lost, and what to set.
        unproved: a text for each setting that the server did not tell.
    """

    durability_warnings: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()

    def facts(self, version: str) -> ServerInfo:
        """Return the findings as a server's report, with its version."""
        return ServerInfo(
            version=version, durability_warnings=self.durability_warnings, unproved=self.unproved
        )


def findings(rules: Iterable[Rule], settings: Iterable[Sequence[object]]) -> Findings:
    """Compare a server's settings with the safe ones.

    Args:
        rules: the safe values.
        settings: name and value of each setting that the server told.
    """
    told = {f"{name}": f"{value}" for name, value in settings}
    durability_warnings: list[str] = []
    unproved: list[str] = []
    for rule in rules:
        if rule.if_set is not None:
            name, values = rule.if_set
            if told.get(name, "").lower() not in values:
                continue
        found = {name: value for name, value in told.items() if _matches(rule.setting, name)}
        if not found and not rule.setting.endswith("*"):
            unproved.append(
                f"{rule.setting} cannot be read; if it is wrong, {rule.loss}; {rule.remedy}"
            )
        for name, value in found.items():
            if not rule.accepts(value):
                durability_warnings.append(f"{name} is {value}: {rule.loss}; {rule.remedy}")
    return Findings(tuple(durability_warnings), tuple(unproved))


def _matches(pattern: str, text: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


_AGAIN: Final = "and their ids may be issued twice"
_TABLE: Final = "table *"  # the SQL backends' names for tables

# PostgreSQL.  `local` and `remote_write` are not safe, because a synchronous standby may lack the
# commit.
_POWER_CUT: Final = "a power cut may damage the database, and then ids may be issued twice"
POSTGRES: Final = (
    Rule(
        "synchronous_commit",
        ("on", "remote_apply"),
        f"a crash, or the promotion of a standby, loses the last grants, {_AGAIN}",
        "ALTER ROLE ... SET synchronous_commit = on",
    ),
    Rule("fsync", ("on",), _POWER_CUT, "set it to on in postgresql.conf"),
    Rule("full_page_writes", ("on",), _POWER_CUT, "set it to on in postgresql.conf"),
    Rule(
        _TABLE,
        ("logged",),
        f"a crash, or the promotion of a standby, empties it, {_AGAIN}",
        "ALTER TABLE ... SET LOGGED",
    ),
)

# MySQL and MariaDB.  Semi-synchronous replication falls back to asynchronous after its timeout; the
# largest timeout that MySQL accepts, 49 days, is never reached.
_ENOUGH_MS: Final = 2**32 - 1
_FALL_BACK: Final = (
    f"replication becomes asynchronous then, so a fail-over loses the last grants, {_AGAIN}"
)
_SEMI_SYNC: Final = tuple(
    rule
    for name, without in (
        ("rpl_semi_sync_master", "wait_no_slave"),
        ("rpl_semi_sync_source", "wait_no_replica"),
    )
    for on in [(f"{name}_enabled", ("on", "1"))]
    for rule in (
        Rule(f"{name}_timeout", (), _FALL_BACK, f"set it to {_ENOUGH_MS}", on, _ENOUGH_MS),
        Rule(f"{name}_{without}", ("on", "1"), _FALL_BACK, "set it to ON", on),
    )
)
MYSQL: Final = (
    Rule(
        "innodb_flush_log_at_trx_commit",
        ("1",),
        f"a crash loses the grants of the last second, {_AGAIN}",
        "set it to 1",
    ),
    Rule(
        "sync_binlog",
        ("1",),
        f"a power cut loses grants that are not in the binary log, {_AGAIN}",
        "set it to 1",
        ("log_bin", ("on", "1")),
    ),
    *_SEMI_SYNC,
    Rule(
        _TABLE,
        ("innodb",),
        f"its engine may lose the last grants in a crash, {_AGAIN}",
        "ALTER TABLE ... ENGINE = InnoDB",
    ),
)

# SQLite.
SQLITE: Final = (
    Rule(
        "journal_mode",
        ("wal", "delete", "truncate", "persist"),
        "a crash may damage the file, and then ids may be issued twice",
        "PRAGMA journal_mode = WAL",
        ("file", ("1",)),
    ),
    Rule(
        "synchronous",
        ("full", "extra"),
        f"a power cut loses the last grants, {_AGAIN}",
        "PRAGMA synchronous = FULL",
        ("journal_mode", ("wal", "truncate", "persist", "memory", "off")),
    ),
    Rule(
        "synchronous",
        ("extra",),
        "a deleted journal may come back in a power cut, because its folder is not synced, "
        f"and undoes the last grants, {_AGAIN}",
        "PRAGMA journal_mode = WAL with synchronous = FULL, or PRAGMA synchronous = EXTRA",
        ("journal_mode", ("delete",)),
    ),
)


# Redis and Valkey.
def _eviction(what: str, *good: str) -> Rule:
    return Rule(
        "maxmemory-policy",
        ("noeviction", *good),
        f"{what} may be evicted, and then its ids may be issued twice",
        "set it to noeviction",
    )


_WITH_LOG: Final = ("appendonly", ("yes",))
REDIS: Final = (
    # Keys that never expire are safe from all other policies.
    _eviction("a counter", "volatile-*")._replace(if_set=("maxmemory", ("set",))),
    Rule(
        "appendonly",
        ("yes",),
        f"a crash loses the grants since the last snapshot, {_AGAIN}",
        "set it to yes",
    ),
    Rule(
        "appendfsync",
        ("always",),
        f"a power cut loses the grants of the last second or two, {_AGAIN}",
        "set it to always",
        _WITH_LOG,
    ),
    Rule(
        "no-appendfsync-on-rewrite",
        ("no",),
        f"a power cut while the log is rewritten loses the last grants, {_AGAIN}",
        "set it to no",
        _WITH_LOG,
    ),
    Rule(
        "aof-load-truncated",
        ("no",),
        f"a log whose end was cut off is loaded without its last grants, {_AGAIN}",
        "set it to no",
        _WITH_LOG,
    ),
)


# Counters of a second expire, and the append-only file does not matter to them, because their fence
# detects a restart.
REDIS_SEQUENCES: Final = (_eviction("the counter of a second"),)


# Servers that do not tell their settings.
_UNTOLD: Final = f"a power cut, or a crash of the operating system, loses the last grants, {_AGAIN}"
ETCD: Final = (Rule("unsafe-no-fsync", (), _UNTOLD, "start no member with --unsafe-no-fsync"),)
ZOOKEEPER: Final = (Rule("forceSync", (), _UNTOLD, "leave it at yes on each server"),)
NATS: Final = (
    Rule(
        "sync_interval",
        ("always",),
        f"at any number of replicas {_UNTOLD}",
        "set 'sync_interval: always' on each server, and say so by sync_always=True, or "
        "?sync_always=true in a URL",
    ),
    Rule(
        "storage of *",
        ("file",),
        f"a restart loses all grants, {_AGAIN}",
        "create it with the storage file",
    ),
)


# Users' clients and pools whose settings were checked, so that each causes one warning.
_looked_at: WeakKeyDictionary[Any, None] = WeakKeyDictionary()


class DurabilityCheck:
    """Checks the settings once for each store object, at its first call.

    Each user's client causes one warning, however many distributors use it.

    Attributes:
        is_due: whether the check has not been done yet.
        durability_warnings: the warnings that the check found; None before it has run.
    """

    __slots__ = ("__weakref__", "_client", "_demand", "durability_warnings", "is_due")

    def __init__(self, demand: Durability = "warn", client: object = None) -> None:
        """Set what to do about the findings.

        Args:
            demand: what to do.
            client: the user's client or pool; None for a client from a URL.

        Raises:
            InvalidArgumentError: ``demand`` is not one of the three words.
        """
        if demand not in DEMANDS:
            raise InvalidArgumentError("durability", demand, one_of(DEMANDS, demand))
        self._demand = demand
        self._client = None if client is None else ref(client)
        self.is_due: bool = demand != "ignore" and self._is_first()
        self.durability_warnings: tuple[str, ...] | None = None

    def _is_first(self) -> bool:
        """Whether no other store has warned about this client."""
        return self._demand != "warn" or self._borrowed() not in _looked_at

    def _borrowed(self) -> object:
        client = None if self._client is None else self._client()
        return self if client is None else client

    def judge(self, label: str, found: Findings) -> None:
        """Log the durability warnings, or raise because of them or of what could not be asked.

        Args:
            label: the store in messages.
            found: the findings about its settings.

        Raises:
            StoreError: the store is not known to be durable, and the demand is "refuse".
        """
        self.durability_warnings = found.durability_warnings
        reasons = (*found.durability_warnings, *found.unproved)
        if reasons and self._demand == "refuse":
            reason = f"durability='refuse' refuses it: {'; '.join(reasons)}"
            remedy = "set what it names, let the store ask for it, or allow it with"
            raise StoreError(label, reason, remedy=f"{remedy} durability='warn'")
        is_first = self.is_due and self._is_first()  # otherwise a concurrent call has logged it
        self.is_due = False
        if self._demand == "warn":
            _looked_at[self._borrowed()] = None
        for weakness in found.durability_warnings if is_first else ():
            logger.warning("%s: %s, or durability='ignore'", label, weakness)
        for each in found.unproved if is_first else ():
            logger.info("%s: %s", label, each)
