"""``manage.py aiocosid_floors``: prints the commands that raise the counters above the rows."""

# pyright: basic
# In strict mode each name of the framework would be an error, because it has no annotations.

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.management.base import BaseCommand
from django.db import connections, router
from django.db.models import Max

from .....segment import SegmentStatistics
from .....sync import SyncIdGenerator
from ... import CosIdField

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("Command",)


class Command(BaseCommand):  # type: ignore[misc]  # Django has no annotations
    """Prints an ``aiocosid set-floor`` for each counter of a `CosIdField`.

    It does not raise a counter itself.  It opens the generators, which costs each of them a
    segment.
    """

    help = (
        "Prints commands that raise each counter above the keys that the databases have given "
        "out. Pipe them to sh before you run the migration that changes the keys: that migration "
        "drops PostgreSQL's and SQLite's own counters. AIOCOSID_STORE names the counters' store."
    )

    def handle(self, **_: Any) -> str:  # noqa: ANN401 - Django's
        """Read the highest key of each table, and return the commands."""
        floors: dict[tuple[str, str], int] = {}
        for model in apps.get_models():
            highest = max(_highest(model), default=0)
            if not highest:
                continue
            generator = model._meta.pk.find()
            counter = generator.statistics() if isinstance(generator, SyncIdGenerator) else None
            if isinstance(counter, SegmentStatistics):  # a Snowflake has no counter
                key = (counter.namespace, counter.name)
                floors[key] = max(highest, floors.get(key, 0))
        return "\n".join(
            f"aiocosid set-floor {shlex.quote(name)} --namespace {shlex.quote(namespace)} "
            f"--above {highest} --create"
            for (namespace, name), highest in sorted(floors.items())
        )


def _highest(model: Any) -> Iterator[int]:  # noqa: ANN401 - any model
    """Yield the highest key of the model in each database that has its table."""
    options: Any = model._meta
    if not isinstance(options.pk, CosIdField):
        return
    for alias in connections:
        tables = connections[alias].introspection.table_names()
        if router.allow_migrate_model(alias, model) and options.db_table in tables:
            rows = model._base_manager.using(alias)
            yield rows.aggregate(highest=Max("pk"))["highest"] or 0
            yield _last_number(connections[alias], options.db_table, f"{options.pk.column}")


def _last_number(connection: Any, table: str, column: str) -> int:  # noqa: ANN401 - Django's
    """Return the last number of the database's own counter, perhaps of a deleted row."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            name = connection.ops.quote_name(table)
            query = "SELECT pg_sequence_last_value(pg_get_serial_sequence(%s, %s)::regclass)"
            cursor.execute(query, [name, column])
        elif connection.vendor == "sqlite" and _has_sequences(cursor):
            cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = %s", [table])
        else:
            return 0
        number, *_ = cursor.fetchone() or (0,)
    return number or 0  # PostgreSQL returns NULL for an unused sequence


def _has_sequences(cursor: Any) -> bool:  # noqa: ANN401 - Django's
    cursor.execute("SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_sequence'")
    return bool(cursor.fetchone()[0])
