"""The database; run it to create the tables."""

import asyncio
import os

from aiocosid.converter import TypedId
from aiocosid.integrations.sqlalchemy import TypedIdType
from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

DATABASE = os.environ.get("DATABASE", "postgresql+asyncpg://app:secret@localhost/orders")
engine = create_async_engine(DATABASE)
sessions = async_sessionmaker(engine, expire_on_commit=False)


class OrderId(TypedId, prefix="ord"):
    """The id of an order, unique over all tenants."""


class Base(DeclarativeBase):
    type_annotation_map = {OrderId: TypedIdType(OrderId)}


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[OrderId] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    title: Mapped[str]


class Invoice(Base):
    __tablename__ = "invoices"

    tenant: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    order_id: Mapped[OrderId] = mapped_column(ForeignKey("orders.id"), unique=True)


async def main() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
