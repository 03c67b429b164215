"""Alembic on a database that holds the application's tables and the tables of ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest
import pytest_asyncio
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    func,
    inspect,
    literal,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlmodel import SQLModel

from aiocosid.integrations import alembic as aiocosid_alembic
from aiocosid.integrations.sqlalchemy import SegmentPrimaryKey, SnowflakePrimaryKey, cosid_default
from aiocosid.provider.models import GeneratedId
from aiocosid.stores.schema import NAMES
from aiocosid.stores.sqlalchemy import SqlAlchemyStore, schema_metadata

from . import test_sqlalchemy, test_sqlmodel, test_typed_columns
from ._other_tables import engine_on

pytestmark = [pytest.mark.integration]

SAMPLES = (
    test_sqlalchemy.Base.metadata,
    test_sqlalchemy.Data.metadata,
    test_typed_columns.Base.metadata,
)
SQLMODELS = (test_sqlmodel.Client, test_sqlmodel.Bill)


class Base(DeclarativeBase):
    pass


class Order(SegmentPrimaryKey, Base):
    __tablename__ = "purchases"

    cosid: Mapped[str] = mapped_column(Text)  # named as one of our tables


class Event(SnowflakePrimaryKey, Base):
    __tablename__ = "events"


class Marked(Base):
    __tablename__ = "only_marked"

    id: Mapped[Annotated[int, GeneratedId("order")]] = mapped_column(BigInteger, primary_key=True)


class Constrained(Base):
    __tablename__ = "constrained"
    __table_args__ = (PrimaryKeyConstraint("id"),)

    id: Mapped[int] = mapped_column(BigInteger, default=cosid_default("order"))


class Numbered(Base):
    """A key that the database numbers, because the model says so or says nothing."""

    __tablename__ = "numbered"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)


class Chosen(Base):
    __tablename__ = "chosen"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, autoincrement=True, default=cosid_default("order")
    )


class Count(Base):
    """Of a query, whose columns are none of a table."""

    __table__ = select(literal(1).label("id"), func.count(Numbered.id).label("count")).subquery()
    __mapper_args__ = {"primary_key": [__table__.c.id]}  # noqa: RUF012 - SQLAlchemy's own way


@pytest_asyncio.fixture(params=["postgres", "mariadb", "sqlite"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    """An engine on a database that a store has its tables in."""
    engine = engine_on(request, request.param)
    await SqlAlchemyStore(engine).create_schema()
    yield engine
    await engine.dispose()


async def inside(engine: AsyncEngine, work: Callable[[Connection], Any]) -> Any:
    async with engine.begin() as connection:
        return await connection.run_sync(work)


def changes(connection: Connection, metadata: Any, **options: Any) -> list[Any]:
    context = MigrationContext.configure(
        connection, opts={"compare_server_default": True, **options}
    )
    return list(compare_metadata(context, metadata))


def migrate(connection: Connection, metadata: Any) -> str:
    """Write the migration that Alembic proposes, and run it."""
    render_item = aiocosid_alembic.render_item
    context = MigrationContext.configure(connection, opts={**aiocosid_alembic.options})
    script = produce_migrations(context, metadata)
    assert script.upgrade_ops is not None
    code = render_python_code(script.upgrade_ops, render_item=render_item)
    names: dict[str, Any] = {}
    imports = "import sqlalchemy as sa\nimport sqlmodel\n"
    exec(f"{imports}def upgrade(op):\n    {code}\n", names)  # noqa: S102 - what Alembic has written
    names["upgrade"](Operations(context))
    return code


@pytest.mark.parametrize(
    "names", [["include_name"], ["include_object"], ["include_name", "include_object"]]
)
async def test_alembic_leaves_the_tables_of_ids_alone(
    engine: AsyncEngine, names: list[str]
) -> None:
    """Without the options it would drop them; a column of such a name is the application's."""
    options = {name: aiocosid_alembic.options[name] for name in names}

    def proposed(connection: Connection) -> tuple[list[Any], list[Any]]:
        Base.metadata.create_all(connection)
        connection.execute(text("ALTER TABLE purchases DROP COLUMN cosid"))
        return changes(connection, Base.metadata), changes(connection, Base.metadata, **options)

    bare, kept = await inside(engine, proposed)
    dropped = {change[1].name for change in bare if change[0] == "remove_table"}
    assert dropped == NAMES & dropped != set()
    assert [(change[0], change[3].name) for change in kept] == [("add_column", "cosid")]


async def test_a_migrated_key_is_not_numbered_by_the_database(
    request: pytest.FixtureRequest,
) -> None:
    """Whatever says that a generator fills it; only a model that says so has such a key."""
    engine = engine_on(request, "postgres")
    metadata = [*SAMPLES, Base.metadata]
    taken = {name for each in metadata for name in each.tables}
    sqlmodels = MetaData()
    for name in [each.__name__.lower() for each in SQLMODELS]:
        assert name not in taken
        SQLModel.metadata.tables[name].to_metadata(sqlmodels)

    def numbered(connection: Connection) -> tuple[set[str], str]:
        code = migrate(connection, [*metadata, sqlmodels])
        found = inspect(connection)
        return {
            table
            for table in found.get_table_names()
            for column in found.get_columns(table)
            if column["default"] is not None or "identity" in column
        }, code

    by_database, code = await inside(engine, numbered)
    await engine.dispose()
    assert by_database == {"numbered", "chosen"}
    assert "aiocosid" not in code


async def test_the_metadata_is_the_schema(engine: AsyncEngine) -> None:
    """Nothing is left to change; the tables that it creates are those that the store creates."""

    def compared(connection: Connection) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        metadata = schema_metadata()
        proposed = changes(connection, metadata, include_object=aiocosid_alembic.include_object)
        by_store = columns(connection)
        metadata.drop_all(connection)
        metadata.create_all(connection)
        return proposed, by_store, columns(connection)

    proposed, by_store, by_metadata = await inside(engine, compared)
    # On MySQL CosId's columns have comments.
    assert {kind for some in proposed for kind, *_ in some} <= {"modify_comment"}
    assert by_store == by_metadata
    assert set(by_store) == NAMES - {"aiocosid_witness"}
    store = SqlAlchemyStore(engine)
    await store.initialize(confirm_no_holders=True)
    counter = store.segment_distributor(namespace="shop", name="order", step=10)
    assert await counter.next_max_id(10) == 10


def columns(connection: Connection) -> dict[str, Any]:
    """Read tables with their columns, keys and indexes, as the database tells them."""
    found = inspect(connection)
    return {
        table: (
            [
                (each["name"], repr(each["type"]), each["nullable"], each["default"])
                for each in found.get_columns(table)
            ],
            found.get_pk_constraint(table)["constrained_columns"],
            sorted((each["name"], *each["column_names"]) for each in found.get_indexes(table)),
        )
        for table in found.get_table_names()
    }


def test_a_schema_of_its_own() -> None:
    metadata = schema_metadata(schema="ids")
    assert {each.schema for each in metadata.sorted_tables} == {"ids"}


def test_functions_of_ones_own_are_combined() -> None:
    """Each answers for the tables of ids alone."""
    table = Table("purchases", MetaData(), Column("cosid", Text))
    ours = Table("cosid", MetaData(), Column("name", Text))
    parents: dict[Any, str | None] = {}
    assert aiocosid_alembic.include_name("aiocosid_witness", "view", parents) is False
    assert aiocosid_alembic.include_name("cosid", "column", parents) is True
    assert aiocosid_alembic.include_name(None, "schema", parents) is True
    include = aiocosid_alembic.include_object
    assert include(ours.c.name, "name", "column", reflected=True, compare_to=None) is False
    assert include(table.c.cosid, "cosid", "column", reflected=True, compare_to=None) is True
    assert include(ours, "cosid", "table", reflected=True, compare_to=ours) is True
    assert include(ours, "cosid", "table", reflected=False, compare_to=None) is True
