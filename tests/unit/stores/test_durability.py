"""Which settings are proved to keep what was granted: the good values, one table a server."""

from __future__ import annotations

from typing import Any

import pytest

from aiocosid.stores._durability import (
    ETCD,
    MYSQL,
    NATS,
    POSTGRES,
    REDIS,
    SQLITE,
    ZOOKEEPER,
    Findings,
    Rule,
    findings,
)

GOOD: dict[tuple[Rule, ...], dict[str, Any]] = {
    POSTGRES: {
        "synchronous_commit": "on",
        "fsync": "on",
        "full_page_writes": "on",
        "table cosid": "logged",
    },
    MYSQL: {
        "innodb_flush_log_at_trx_commit": 1,
        "log_bin": "ON",
        "sync_binlog": "1",
        "rpl_semi_sync_master_enabled": "ON",
        "rpl_semi_sync_master_timeout": "18446744073709551615",
        "rpl_semi_sync_master_wait_no_slave": "ON",
        "table cosid": "InnoDB",
    },
    SQLITE: {"file": 1, "journal_mode": "wal", "synchronous": "FULL"},
    REDIS: {
        "maxmemory": "set",
        "maxmemory-policy": "volatile-lru",
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "aof-load-truncated": "no",
    },
    NATS: {"sync_interval": "always", "storage of stream a": "file"},
}


@pytest.mark.parametrize("rules", GOOD)
def test_the_good_values_are_proved(rules: tuple[Rule, ...]) -> None:
    assert findings(rules, GOOD[rules].items()) == Findings()


@pytest.mark.parametrize(
    ("rules", "bad"),
    [
        (POSTGRES, {"synchronous_commit": "local"}),
        (POSTGRES, {"synchronous_commit": "remote_write"}),
        (POSTGRES, {"fsync": "off"}),
        (POSTGRES, {"full_page_writes": "off"}),
        (POSTGRES, {"table cosid_machine": "unlogged"}),
        (POSTGRES, {"table cosid": "temporary"}),
        (MYSQL, {"innodb_flush_log_at_trx_commit": 2}),
        (MYSQL, {"sync_binlog": 0}),
        (MYSQL, {"rpl_semi_sync_master_timeout": 10_000}),
        (MYSQL, {"rpl_semi_sync_master_wait_no_slave": "OFF"}),
        (MYSQL, {"table aiocosid_cell": "MyISAM"}),
        (SQLITE, {"journal_mode": "off"}),
        (SQLITE, {"synchronous": "NORMAL"}),
        (SQLITE, {"journal_mode": "delete"}),
        (REDIS, {"maxmemory-policy": "allkeys-lfu"}),
        (REDIS, {"appendonly": "no"}),
        (REDIS, {"appendfsync": "everysec"}),
        (REDIS, {"no-appendfsync-on-rewrite": "yes"}),
        (REDIS, {"aof-load-truncated": "yes"}),
        (NATS, {"storage of stream a": "memory"}),
    ],
)
def test_any_other_value_is_a_weakness(rules: tuple[Rule, ...], bad: dict[str, Any]) -> None:
    """Also one that no version of today knows."""
    ((setting, value),) = bad.items()
    for each in (value, "new"):
        durability_warnings, unproved = findings(rules, (GOOD[rules] | {setting: each}).items())
        assert unproved == ()
        # With a deleted journal it is `synchronous` that does not suffice.
        named = "synchronous is FULL" if each == "delete" else f"{setting} is {each}"
        assert durability_warnings[0].startswith(f"{named}: ")
        assert all("issued twice" in weakness for weakness in durability_warnings)


@pytest.mark.parametrize(
    ("rules", "changed"),
    [
        (SQLITE, {"journal_mode": "delete", "synchronous": "EXTRA"}),
        (SQLITE, {"journal_mode": "truncate"}),
        (POSTGRES, {"synchronous_commit": "remote_apply"}),
        (MYSQL, {"log_bin": "OFF", "sync_binlog": 0}),
        (MYSQL, {"rpl_semi_sync_master_enabled": "OFF", "rpl_semi_sync_master_timeout": 1}),
        (REDIS, {"maxmemory": "0", "maxmemory-policy": "allkeys-lru"}),
    ],
)
def test_what_does_not_matter(rules: tuple[Rule, ...], changed: dict[str, Any]) -> None:
    assert findings(rules, (GOOD[rules] | changed).items()) == Findings()


@pytest.mark.parametrize("rules", [POSTGRES, MYSQL, REDIS, NATS, ETCD, ZOOKEEPER])
def test_what_is_not_told_is_not_proved(rules: tuple[Rule, ...]) -> None:
    """Nothing is good by silence."""
    durability_warnings, unproved = findings(rules, ())
    assert durability_warnings == ()
    assert all("cannot be read" in each for each in unproved)
    assert unproved


def test_a_database_in_memory_is_not_meant_to_be_durable() -> None:
    assert findings(SQLITE, ()) == Findings()
