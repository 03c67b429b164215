"""Alembic's environment: it migrates the database of the application."""

import asyncio

from aiocosid.integrations import alembic as aiocosid_alembic
from alembic import context
from app import Base, engine
from sqlalchemy import Connection


def migrate(connection: Connection) -> None:
    """Run the migrations on an open connection."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        **aiocosid_alembic.options,  # the tables of ids, if they are ever moved here
    )
    with context.begin_transaction():
        context.run_migrations()


async def main() -> None:
    """Connect as the application does."""
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
        await connection.commit()
    await engine.dispose()


asyncio.run(main())
