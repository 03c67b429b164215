"""The commands that generate and parse Snowflake ids."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidArgumentError
from ..machine import MachineIdLease
from ..snowflake import SnowflakeId
from ._options import (
    DEFAULT_TIMEOUT,
    AsTable,
    AsText,
    Bits,
    Config,
    Count,
    Epoch,
    Layout,
    Namespace,
    StoreUrl,
    Timeout,
    Unit,
    Zone,
)
from ._output import TableFormat, TextFormat, write_ids, write_json, write_table
from ._parts import UNIX_EPOCH, OwnLayout, layout_of, parsed, time_ms
from ._session import StoreSession

if TYPE_CHECKING:
    from ..abc import Store
    from ..snowflake import SnowflakeLayout

__all__ = ("parse", "snowflake")


def parse(
    id_: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A number, friendly text, or CosIdGenerator's text."),
    ] = None,
    *,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Show the lowest and highest id of a moment instead."),
    ] = None,
    layout: Layout = None,
    bits: Bits = None,
    unit: Unit = None,
    epoch: Epoch = None,
    zone: Zone = None,
    form: AsTable = TableFormat.TABLE,
) -> None:
    """Show the fields of a Snowflake id: its time, machine id and sequence.

    Nearly every number can be read with every layout, so a wrong layout is not detected.
    """
    own = OwnLayout(bits=bits, unit=unit, epoch=epoch)
    if id_ is None or at is not None:
        _write_bounds(at, layout_of(layout, own), form, is_alone=id_ is None)
        return
    found = parsed(id_, layout, zone, own)
    if form is TableFormat.JSON:
        write_json(asdict(found))
    else:
        write_table(("", "value"), found.rows(), left=(0, 1))


def _write_bounds(
    at: str | None, layout: SnowflakeLayout, form: TableFormat, *, is_alone: bool
) -> None:
    if at is None or not is_alone:
        raise InvalidArgumentError("ID", None, "is required, or --at TIME without an ID")
    moment = UNIX_EPOCH + timedelta(milliseconds=time_ms(at, "--at"))
    found = {"lowest": layout.lowest(moment), "highest": layout.highest(moment)}
    if form is TableFormat.JSON:
        write_json(found)
    else:
        write_table(("", "id"), [(name, str(value)) for name, value in found.items()], left=(0,))


def snowflake(
    *,
    count: Count = 1,
    store: StoreUrl = None,
    config: Config = None,
    layout: Layout = None,
    bits: Bits = None,
    unit: Unit = None,
    epoch: Epoch = None,
    namespace: Namespace = None,
    form: AsText = TextFormat.TEXT,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Print Snowflake ids, with a machine id leased from the store.

    It gives the machine id back, then prints all of the ids or none.
    """
    chosen = layout_of(layout, OwnLayout(bits=bits, unit=unit, epoch=epoch))
    with StoreSession.on(store, config, timeout=timeout) as session:
        space = session.namespace(namespace)
        ids = session.run(_taken, session.store, space, chosen, count, timeout)
    write_ids([ids], form)
    session.tell_written()


async def _taken(
    store: Store, namespace: str, layout: SnowflakeLayout, count: int, patience: float
) -> list[int]:
    lease = MachineIdLease(
        store.machine_id_distributor(namespace=namespace),
        bits=layout.machine_bits,
        start_timeout=patience,
        call_timeout=patience,
        close_timeout=patience,
    )
    async with SnowflakeId(lease, layout=layout, wait_timeout=patience) as generator:
        return await generator.next_ids(count)
