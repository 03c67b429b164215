"""Orders in PostgreSQL, whose ids come from Redis."""

import os
from datetime import datetime
from typing import Annotated

import aiocosid
from aiocosid.abc import IdGenerator
from aiocosid.converter import Int64Text
from aiocosid.integrations.asgi import HealthApp
from aiocosid.integrations.fastapi import generator, handle_errors, lifespan
from aiocosid.integrations.sqlalchemy import SegmentPrimaryKey, cosid_default
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict
from sqlalchemy import BigInteger, ForeignKey, func
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

DATABASE = os.environ.get("DATABASE", "postgresql+asyncpg://app:secret@localhost/example")
engine = create_async_engine(DATABASE)
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    """The tables, which Alembic compares with the database."""


class Order(SegmentPrimaryKey, Base):
    """An order; its generator is named as its table."""

    __tablename__ = "orders"

    title: Mapped[str]
    made_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Event(Base):
    """What happened to an order; its id tells when."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, default=cosid_default("events"))
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    what: Mapped[str]


class NewOrder(BaseModel):
    """What a client sends."""

    title: str


class OrderOut(NewOrder):
    """What it gets; its id is text in JSON."""

    model_config = ConfigDict(from_attributes=True)

    id: Int64Text


app = FastAPI(lifespan=lifespan(aiocosid.configure("ids.toml")))
handle_errors(app)
app.add_route("/health", HealthApp())


@app.post("/orders", status_code=201)
async def create_order(
    new: NewOrder, orders: Annotated[IdGenerator, Depends(generator("orders"))]
) -> OrderOut:
    """Store an order and its first event, in one transaction."""
    order = Order(id=await orders.next_id(), title=new.title)
    async with sessions.begin() as session:
        session.add(order)
        await session.flush()
        session.add(Event(order_id=order.id, what="created"))
    return OrderOut.model_validate(order)


@app.get("/orders/{order_id}")
async def read_order(order_id: Int64Text) -> OrderOut:
    """Return an order."""
    async with sessions() as session:
        order = await session.get(Order, int(order_id))
    if order is None:
        raise HTTPException(404)
    return OrderOut.model_validate(order)
