"""What Leaf's two registries in ZooKeeper have in common."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from ..._checks import MAX_MS
from ...errors import CorruptMachineStateError
from ...stores.zookeeper.tree import STORE
from .._zookeeper_registry import ZookeeperRegistry
from ._address import INTERVAL, LeafAddress, check_leaf_name

if TYPE_CHECKING:
    from ...stores.zookeeper.tree import ZookeeperLink

__all__ = ("LeafNodes", "as_json", "payload", "time_of")

ROOT: Final = "/snowflake"  # Leaf's PREFIX_ZK_PATH, without leaf.name


class LeafNodes(ZookeeperRegistry):
    """Worker ids below ``/snowflake/{leaf.name}``."""

    def __init__(
        self, link: ZookeeperLink, name: str, address: LeafAddress, folder: str, **times: float
    ) -> None:
        root, self.address = f"{ROOT}/{check_leaf_name(name)}", address
        super().__init__(link, root, address.instance_id, interval=INTERVAL, **times)
        self.folder = f"{root}/{folder}"


def as_json(**fields: str | int | None) -> bytes:
    """Write what a node holds, as Java's mapper does."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def payload(path: str, data: bytes) -> dict[str, Any]:
    """Read what a node holds.

    Raises:
        CorruptMachineStateError: it is no JSON object.
    """
    with suppress(ValueError):
        if isinstance(found := json.loads(data), dict):
            return cast("dict[str, Any]", found)
    expected = "a JSON object of Leaf's"
    raise CorruptMachineStateError(STORE, place=path, found=repr(data), expected=expected)


def time_of(path: str, found: Any, *, or_none: bool = False) -> int:  # noqa: ANN401 - whatever lies there
    """Read a time in milliseconds since 1970; -1 for none, where that may be.

    Raises:
        CorruptMachineStateError: it is none.
    """
    if found is None and or_none:
        return -1
    if type(found) is not int or not 0 <= found < MAX_MS:
        expected = "a time in milliseconds since 1970"
        raise CorruptMachineStateError(STORE, place=path, found=repr(found), expected=expected)
    return found
