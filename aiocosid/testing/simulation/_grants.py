"""Whom a store gives which machine id, as the shipped scripts and statements say it.

Noted at the store, in the order in which it gives them, whenever their owners hear of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...stores._machine_tables import MachineDialect
    from ._redis_commands import Reply

__all__ = ("Grant", "granted_by_script", "granted_by_statement")

Grant: TypeAlias = "tuple[str, int, int, bool]"
"""Namespace, machine id, the floor in milliseconds, and whether the owner writes marks."""

ENTRIES: Final = b"}:itc_idx"
UNMARKED: Final = b"unmarked"  # said by the peer that is as CosId


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
