"""Tasks whose ids come from the broker of their host: one machine id for all workers."""

import os
from pathlib import Path

import aiocosid.sync
from celery import Celery

app = Celery("tasks", broker=os.environ.get("CELERY", "redis://localhost:6379/0"))
app.conf.result_backend = app.conf.broker_url

# Nothing is opened before the first id; each worker process opens its own connection.
SOCKET = Path(__file__).resolve().with_name("broker.sock")  # of `aiocosid broker`
ids = aiocosid.sync.connect(f"aiocosid+unix://{SOCKET}", namespace="shop")
invoices = ids.segment_chain("invoice")
events = ids.remote("event")


@app.task
def bill(order_id: int) -> dict[str, int]:
    """Give an order a number for its invoice, and the event an id that tells when."""
    return {"order": order_id, "invoice": invoices.next_id(), "event": events.next_id()}
