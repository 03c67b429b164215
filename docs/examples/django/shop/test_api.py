"""The API, as a client sees it."""

import aiocosid.sync
from aiocosid.stores.memory import MemoryStore
from rest_framework.test import APITestCase

from shop.models import Order

ROUNDED = 2**53 + 1  # JavaScript makes 2**53 of this number


class ApiTests(APITestCase):
    """Each test counts from 1."""

    def setUp(self) -> None:
        ids = aiocosid.sync.connect(MemoryStore())
        self.addCleanup(ids.close)
        self.enterContext(self.settings(AIOCOSID=ids))

    def test_an_order_has_its_id_and_an_event(self) -> None:
        made = self.client.post("/orders/", {"title": "tea"}).json()
        (event,) = made["events"]
        assert made["id"] == event["order"] == "1"
        assert int(event["id"]) > 2**53
        assert self.client.get("/orders/1/").json() == made

    def test_an_id_comes_back_from_text(self) -> None:
        Order.objects.create(pk=ROUNDED, title="cups")
        reply = self.client.post("/events/", {"order": f"{ROUNDED}", "what": "paid"})
        assert reply.json()["order"] == f"{ROUNDED}"
        assert Order.objects.get().events.get().what == "paid"
