"""Whom a store gives which machine id, as the shipped scripts and statements say it.

Noted at the store, in the order in which it gives them, whenever their owners hear of it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...stores._machine_tables import MachineDialect
    from ._redis_commands import Reply
    from ._zookeeper_tree import Nodes

__all__ = ("Grant", "granted_by_script", "granted_by_statement", "noted_by_transaction")

Grant: TypeAlias = "tuple[str, int, int, bool]"
"""Namespace, machine id, the floor in milliseconds, and whether the owner writes marks."""

Noted: TypeAlias = "tuple[str, int, int, int, str]"
"""Namespace, machine id, the floor, the owner's clock, both in milliseconds, and the call that was
handed it, if the tree did not know of that one."""

ENTRIES: Final = b"}:itc_idx"
UNMARKED: Final = b"unmarked"  # said by the peer that is as CosId
NOTE: Final = re.compile("/aiocosid/([^/]+)/notes/([0-9]+)")
TWITTER: Final = re.compile("/aiocosid/twitter/([^/]+)/([0-9]+)")


def granted_by_script(words: Sequence[bytes], reply: Reply) -> Grant | None:
    """Return what a script has handed out, if it was one that does so.

    Args:
        words: the command.
        reply: its reply.
    """
    if not (isinstance(reply, list) and reply[:1] == [b"taken"] and words[3].endswith(ENTRIES)):
        return None
    namespace = words[3].removeprefix(b"cosid:{").removesuffix(ENTRIES).decode()
    _, machine_id, floor_ms, *rest = (each if isinstance(each, bytes) else b"" for each in reply)
    return namespace, int(machine_id), int(floor_ms), UNMARKED not in rest


def granted_by_statement(
    dialect: MachineDialect, statement: str, values: Mapping[str, Any], rows: Sequence[Any]
) -> Grant | None:
    """Return what a statement has handed out, if it was one that does so.

    Args:
        dialect: the statements.
        statement: the one that was run.
        values: what it was given.
        rows: what it answered.
    """
    if not rows or statement not in {dialect.take, dialect.insert}:
        return None
    _, machine_id, mark_ms, *_ = rows[0]
    return values["namespace"], machine_id, max(values.get("stamp", -1), mark_ms), True


def noted_by_transaction(before: Nodes, operations: Sequence[Any]) -> Iterator[Noted]:
    """Give what a transaction on ZooKeeper has noted of machine ids.

    Args:
        before: the tree as it was.
        operations: what was done.
    """
    for each in operations:
        if match := NOTE.fullmatch(each.path):
            yield _noted(before, operations, each, match[1], int(match[2]))
        elif match := TWITTER.fullmatch(each.path):
            yield _noted_by_twitter(before, operations, each, unquote(match[1]), int(match[2]))


def _noted(
    before: Nodes,
    operations: Sequence[Any],
    note: Any,  # noqa: ANN401 - the driver's
    namespace: str,
    machine_id: int,
) -> Noted:
    former: dict[str, Any] = json.loads(before[note.path].data if note.path in before else b"{}")
    floor_ms, stamp_ms, token = former.get("mark", -1), -1, json.loads(note.data)["token"]
    for each in operations:  # what lay in the entries, or among those given back; what does now
        if not each.path.startswith(f"/cosid/{namespace}/__"):
            continue
        if each.path in before:
            floor_ms = max(floor_ms, _stamp(before[each.path].data, machine_id))
        stamp_ms = max(stamp_ms, _stamp(getattr(each, "data", b""), machine_id))
    is_told = token != former.get("token", "")
    return namespace, machine_id, floor_ms, stamp_ms, token if is_told else ""


def _stamp(state: bytes, machine_id: int) -> int:
    number, found, stamp = state.partition(b"|")
    return int(stamp) if found and int(number) == machine_id else -1


def _noted_by_twitter(
    before: Nodes,
    operations: Sequence[Any],
    note: Any,  # noqa: ANN401 - the driver's
    path: str,
    machine_id: int,
) -> Noted:
    worker = f"{path}/{machine_id}"
    is_taken = any(each.path == worker and hasattr(each, "flags") for each in operations)
    floor_ms = int(before[note.path].data.partition(b"|")[0]) if note.path in before else -1
    return path, machine_id, floor_ms, -1, f"{worker} {before[path].made}" if is_taken else ""
