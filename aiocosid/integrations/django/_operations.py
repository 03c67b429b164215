"""A migration that creates the tables of ids in one of Django's databases."""

# pyright: basic
# In strict mode each name of the framework would be an error, because it has no annotations.

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation

from ...errors import InvalidArgumentError
from ...stores.schema import schema_statements

__all__ = ("CreateIdTables",)


class CreateIdTables(Operation):  # type: ignore[misc]  # Django has no annotations
    """Creates the missing tables of a store: ``operations = [CreateIdTables()]``.

    It is for a store in one of Django's own databases.  The statements are those of ``aiocosid init
    --sql``.  On SQLite it does nothing, because a store creates its own tables there.

    Reversing the migration keeps the tables: if they were dropped and created again, the counters
    would begin at 1 and issue the ids of existing rows.

    Attributes:
        database: the alias of the database.
    """

    reduces_to_sql = True
    reversible = True

    def __init__(self, database: str = "default") -> None:
        """Describe the operation.

        Args:
            database: the alias of the database; ``migrate`` changes no other database.
        """
        self.database = database

    def state_forwards(self, app_label: str, state: object) -> None:
        """Change no model."""

    def database_forwards(
        self,
        app_label: str,  # noqa: ARG002 - passed by Django
        schema_editor: object,
        from_state: object,  # noqa: ARG002 - as above
        to_state: object,  # noqa: ARG002 - as above
    ) -> None:
        """Create the tables.

        Raises:
            InvalidArgumentError: the database cannot hold a store, for example Oracle.
        """
        editor: Any = schema_editor
        connection = editor.connection
        if connection.alias != self.database:
            return
        if connection.vendor not in {"postgresql", "mysql", "sqlite"}:
            argument = f"the database {self.database!r} of CreateIdTables"
            rule = "must be PostgreSQL, MySQL, MariaDB or SQLite"
            raise InvalidArgumentError(argument, connection.vendor, rule)
        for each in schema_statements(connection.vendor) if connection.vendor != "sqlite" else ():
            editor.execute(each, params=None)

    def database_backwards(self, app_label: str, *states: object) -> None:
        """Keep the tables."""

    def describe(self) -> str:
        """Return the text for ``migrate --plan``."""
        return "Create the tables of ids, unless they exist"


CreateIdTables.__module__ = "aiocosid.integrations.django"  # the name that migrations import
