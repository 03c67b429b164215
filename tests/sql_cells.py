"""The cells of a SQL database, read and written behind everybody's back."""

# ruff: noqa: S608 - what is put in is ours

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from aiocosid.machine.cells import Marker, NamespaceRecord

__all__ = (
    "Run",
    "age",
    "forget",
    "mark",
    "note_name",
    "read_cell",
    "read_space",
    "write_cell",
    "write_space",
)

Run: TypeAlias = Callable[[str], Sequence[Sequence[object]]]
"""Runs one statement, and returns its rows."""


def quoted(text: str) -> str:
    """A text as SQL has it."""
    return "'{}'".format(text.replace("'", "''"))


def note_name(namespace: str, machine_id: int) -> str:
    """What the note on a machine id is called."""
    return f"note/{namespace}.{machine_id:08d}"


def read_cell(run: Run, name: str) -> str | None:
    """A cell's text."""
    rows = run(f"select value from aiocosid_cell where name = {quoted(name)}")
    return str(rows[0][0]) if rows else None


def write_cell(run: Run, name: str, text: str, written_ms: int = 0) -> None:
    """Write a cell, as of that time."""
    run(f"delete from aiocosid_cell where name = {quoted(name)}")
    run(
        "insert into aiocosid_cell (name, value, written_ms) "
        f"values ({quoted(name)}, {quoted(text)}, {written_ms})"
    )


def read_space(run: Run, namespace: str) -> NamespaceRecord | None:
    """The cell of a namespace."""
    text = read_cell(run, f"space/{namespace}")
    return NamespaceRecord.read(text) if text is not None else None


def write_space(run: Run, namespace: str, space: NamespaceRecord) -> None:
    """Write the cell of a namespace."""
    write_cell(run, f"space/{namespace}", space.text())


def _epoch(run: Run) -> str | None:
    text = read_cell(run, "marker")
    return Marker.read(text).marker_id if text is not None else None


def mark(run: Run, namespace: str, identity: str) -> None:
    """Mark a namespace as sound, unless the whole store is."""
    if not _epoch(run):
        write_space(run, namespace, NamespaceRecord(identity=identity))


def age(run: Run, namespace: str, seconds: float) -> None:
    """Make the last renewal of all machine ids older, and a quarantine."""
    ms = int(seconds * 1000)
    run(
        f"update cosid_machine set last_timestamp = last_timestamp - {ms} "
        f"where namespace = {quoted(namespace)}"
    )
    run(
        f"update aiocosid_cell set written_ms = written_ms - {ms} "
        f"where name like {quoted(f'note/{namespace}.%')}"
    )
    space = read_space(run, namespace)
    if space is not None and space.quarantine:
        write_space(run, namespace, replace(space, since_ms=space.since_ms - ms))


def forget(run: Run, namespace: str, *, everything: bool) -> None:
    """Lose all of a namespace's machine ids, or become another store that has the same."""
    space = read_space(run, namespace) or NamespaceRecord()
    if everything:
        run(f"delete from cosid_machine where namespace = {quoted(namespace)}")
        run(
            f"delete from aiocosid_cell where name like {quoted(f'note/{namespace}.%')} "
            f"or name like {quoted(f'own/%/{namespace}/%')} "
            f"or name = {quoted(f'space/{namespace}')}"
        )
        space = NamespaceRecord()
    epoch = _epoch(run)
    if epoch is not None:  # else a store that is marked as a whole would hand out at once
        write_space(run, namespace, replace(space, identity="another", marker_id=epoch))
    elif not everything:
        write_space(run, namespace, replace(space, identity="another"))
