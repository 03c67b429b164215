"""Orders and invoices of several tenants."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import aiocosid
from aiocosid.abc import IdGenerator, Provider
from aiocosid.abc.events import Instruments
from aiocosid.integrations.asgi import HealthApp
from aiocosid.integrations.fastapi import generator, handle_errors, lifespan
from aiocosid.integrations.logging import LoggingInstrument
from aiocosid.integrations.prometheus import PrometheusInstrument
from aiocosid.integrations.sqlalchemy import gapless
from aiocosid.stores.sqlalchemy import SqlAlchemyStore
from fastapi import Depends, FastAPI, HTTPException
from prometheus_client import make_asgi_app
from pydantic import BaseModel, ConfigDict
from sqlalchemy import select
from tables import Invoice, Order, OrderId, engine, sessions

metrics = PrometheusInstrument()


@asynccontextmanager
async def open_ids() -> AsyncIterator[Provider]:
    store = SqlAlchemyStore(engine)  # the counters are in the same database
    settings = {"store": store, "namespace": "shop", "generators": {"order": {"kind": "chain"}}}
    both = Instruments(LoggingInstrument(), metrics)
    async with aiocosid.configure(settings, instrument=both) as ids:
        with metrics.watch(ids):
            yield ids
    await engine.dispose()


app = FastAPI(lifespan=lifespan(open_ids))
handle_errors(app)
app.add_route("/health", HealthApp())
app.mount("/metrics", make_asgi_app())


class NewOrder(BaseModel):
    title: str


class OrderOut(NewOrder):
    model_config = ConfigDict(from_attributes=True)

    id: OrderId


class InvoiceOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    number: int
    order_id: OrderId


@app.post("/{tenant}/orders", status_code=201)
async def create_order(
    tenant: str, new: NewOrder, ids: Annotated[IdGenerator, Depends(generator("order"))]
) -> OrderOut:
    order = Order(id=OrderId(await ids.next_id()), tenant=tenant, title=new.title)
    async with sessions.begin() as session:
        session.add(order)
    return OrderOut.model_validate(order)


@app.post("/{tenant}/orders/{order_id}/invoice")
async def create_invoice(tenant: str, order_id: OrderId) -> InvoiceOut:
    async with sessions.begin() as session:
        order = await session.get(Order, order_id, with_for_update=True)  # one request at a time
        if order is None or order.tenant != tenant:
            raise HTTPException(404)
        invoice = await session.scalar(select(Invoice).where(Invoice.order_id == order_id))
        if invoice is None:
            taken = await gapless(session, "invoice", tenant=tenant)  # last before the commit
            invoice = Invoice(tenant=tenant, number=taken.number, order_id=order_id)
            session.add(invoice)
    return InvoiceOut.model_validate(invoice)
