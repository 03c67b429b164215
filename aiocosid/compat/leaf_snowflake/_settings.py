"""Translates Leaf's configuration keys to settings, and describes an id as Leaf does.  No I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from ...abc.dates import resolve_zone
from ...errors import InvalidArgumentError
from ...errors.base import one_of
from ._address import LeafAddress, check_leaf_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

    from ...snowflake import SnowflakeLayout

__all__ = ("decode", "settings_from_leaf")

_JDBC: Final = re.compile(r"jdbc:(mysql|mariadb)://([^/?@]+)/([^/?]+)(?:\?.*)?", re.DOTALL)
_HOSTS: Final = re.compile(r"[^\s/?#@,]+(?:,[^\s/?#@,]+)*(?:/[^\s?#@]*)?")
MODES: Final = ("zk_normal", "zk_recycle", "mysql", "local")
TAKEN: Final = {  # the options of modes that may start without their registry
    "zk_normal": {"state_dir", "offline", "leaf_dir"},
    "mysql": {"state_dir", "offline"},
}
RANDOM_START: Final = 100


def settings_from_leaf(
    properties: Mapping[str, str],
    *,
    ip: str | None = None,
    directory: str = "",
    state_dir: str = "",
    offline: float = 0.0,
    leaf_dir: str = "",
) -> dict[str, object]:
    """Translate ``leaf.properties`` for `aiocosid.configure`.

    Snowflakes become the default generator, ``share``; segments become the store of all others,
    with all tags of its table in ``leaf_tags``.  Keys that do not begin with ``leaf.`` are ignored.

    Args:
        properties: the keys and values as in the file; an empty text counts as missing.
        ip: this host's address, for snowflakes.  Leaf takes the address of the first interface;
            aiocosid never guesses it.
        directory: Java's ``java.io.tmpdir``, for the mode ``local``; by default the system's
            directory for temporary files.
        state_dir: the store's option, for the modes ``zk_normal`` and ``mysql``.
        offline: the store's option, in seconds, for the same modes.
        leaf_dir: the store's option, for the mode ``zk_normal``.

    Returns:
        ``share``, ``store`` and ``leaf_tags``, with the stores' URLs, which contain the password of
        ``leaf.jdbc``.

    Raises:
        InvalidArgumentError: a key is missing, unknown or malformed; its ``argument`` is the key.
    """
    options = {key: text.strip() for key, text in properties.items() if key.startswith("leaf.")}
    for key in sorted(options.keys() - _KNOWN):
        rule = f"is not known; use one of {', '.join(sorted(_KNOWN))}"
        raise InvalidArgumentError(key, "...", rule)
    settings: dict[str, object] = {}
    if _is_on(options, "leaf.segment.enable"):
        settings |= {"store": f"leaf+{_database(options)}", "leaf_tags": {}}
    if _is_on(options, "leaf.snowflake.enable"):
        share = {"kind": "snowflake", "layout": "leaf", "random_start": RANDOM_START}
        more = {"state_dir": state_dir, "offline": str(offline or ""), "leaf_dir": leaf_dir}
        more = {name: text for name, text in more.items() if text}
        settings["share"] = {**share, "store": _registry(options, ip, directory, more)}
    return settings


_KEYS: Final = """
name segment.enable snowflake.enable jdbc.url jdbc.username jdbc.password
snowflake.zk.address snowflake.port snowflake.mode snowflake.local.workIdMap"""
_KNOWN: Final = {f"leaf.{key}" for key in _KEYS.split()}


def _is_on(options: Mapping[str, str], key: str) -> bool:
    """Return a flag, which must be given because Leaf's page and code have other defaults."""
    found = options.get(key, "").lower()
    if found not in {"true", "false"}:
        rule = "must be 'true' or 'false': Leaf's code defaults to true, its documentation to false"
        raise InvalidArgumentError(key, options.get(key), rule)
    return found == "true"


def _needed(options: Mapping[str, str], key: str, why: str) -> str:
    if not (found := options.get(key, "")):
        raise InvalidArgumentError(key, None, f"is required for {why}")
    return found


def _database(options: Mapping[str, str]) -> str:
    """Return the database's URL, without options of the Java driver."""
    key = "leaf.jdbc.url"
    match = _JDBC.fullmatch(_needed(options, key, "the database"))
    if match is None:
        rule = "must look like jdbc:mysql://host:3306/database, with one host"
        raise InvalidArgumentError(key, "jdbc:...", rule)
    user, password = (options.get(f"leaf.jdbc.{each}", "") for each in ("username", "password"))
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    return f"{match[1]}://{login}{'@' if login else ''}{match[2]}/{match[3]}"


def _registry(
    options: Mapping[str, str], ip: str | None, directory: str, more: Mapping[str, str]
) -> str:
    """Return the URL of the registry of worker ids; ``more`` is for those with permanent ids."""
    mode = options.get("leaf.snowflake.mode") or MODES[0]
    if mode not in MODES:
        raise InvalidArgumentError("leaf.snowflake.mode", mode, one_of(MODES, mode))
    if ip is None:
        rule = "is required: Leaf guesses this host's address, and two hosts may guess the same"
        raise InvalidArgumentError("ip", ip, rule)
    address = LeafAddress.of(ip, _needed(options, "leaf.snowflake.port", "snowflakes"))
    for name in sorted(more.keys() - TAKEN.get(mode, set())):
        raise InvalidArgumentError(name, more[name], f"cannot be used in mode {mode}")
    query = {"ip": address.ip, "port": address.port, **more}
    if mode == "mysql":
        return f"leaf-workerid+{_database(options)}?{urlencode(query, quote_via=quote)}"
    query = {"name": check_leaf_name(_needed(options, "leaf.name", "snowflakes")), **query}
    if mode == "local":
        query["map"] = _needed(options, "leaf.snowflake.local.workIdMap", "mode local")
        return f"leaf-local+file://{quote(directory)}?{urlencode(query, quote_via=quote)}"
    key = "leaf.snowflake.zk.address"
    hosts = _needed(options, key, f"mode {mode}")
    if not _HOSTS.fullmatch(hosts):
        raise InvalidArgumentError(key, hosts, "must be ZooKeeper's host:port,host:port")
    path = "" if "/" in hosts else "/"
    scheme = f"leaf-{mode.replace('_', '-')}+zookeeper"
    return f"{scheme}://{hosts}{path}?{urlencode(query, quote_via=quote)}"


def decode(snowflake_id: int, layout: SnowflakeLayout, *, zone: tzinfo | str) -> dict[str, str]:
    """Return the answer of ``/decodeSnowflakeId``: all fields as text, the time in ms and local.

    Leaf always computes with its default epoch there, even if ids have another ``twepoch``; this
    function uses the layout's epoch.

    Args:
        snowflake_id: an id.
        layout: its layout: `aiocosid.snowflake.LEAF`, or one with another epoch.
        zone: the time zone of the local time; Leaf uses its server's.

    Raises:
        InvalidIdError: the number is not an id of the layout.
        InvalidArgumentError: the zone is unknown.
    """
    parts = layout.parse(snowflake_id, resolve_zone(zone))
    local = parts.timestamp.strftime("%Y-%m-%d %H:%M:%S")
    return {
        "timestamp": f"{parts.timestamp_ms}({local}.{parts.timestamp_ms % 1000:03})",
        "workerId": str(parts.machine_id),
        "sequenceId": str(parts.sequence),
    }
