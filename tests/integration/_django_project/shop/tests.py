"""What holds on every database; `manage.py test` runs it, in several processes at once."""

import json
from collections.abc import Sequence
from io import StringIO
from typing import Any
from unittest.mock import patch

from django.contrib.auth.models import User
from django.core import serializers
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.test import TestCase, TransactionTestCase
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

import aiocosid.sync
from aiocosid.errors import WouldBlock
from aiocosid.integrations.django import CosIdField
from aiocosid.stores.memory import MemoryStore

from .models import Event, GiftOrder, Item, Order, Tag

BIG = 2**53 + 1  # a number that JavaScript rounds


class Counter:
    """A generator of the tests, which counts the calls."""

    def __init__(self, last: int = 0) -> None:
        self.last, self.calls = last, 0

    def next_id(self) -> int:
        return self.next_ids(1)[0]

    def next_ids(self, n: int) -> Sequence[int]:
        self.calls += 1
        self.last += n
        return range(self.last - n + 1, self.last + 1)


class IdsFromOne:
    """Each test has generators of its own, whose first id is 1."""

    def setUp(self: Any) -> None:
        ids = aiocosid.sync.connect(MemoryStore(), namespace="test")
        ids.segment_chain("number")
        self.addCleanup(ids.close)
        self.enterContext(self.settings(AIOCOSID=ids))


class RowTests(IdsFromOne, TestCase):
    def test_an_updated_row_gives_its_key(self) -> None:
        one, two = Order.objects.create(), Order.objects.create()
        before = Item.objects.create(order=one, number=50)
        how: Any = {
            "update_conflicts": True,
            "unique_fields": ["number"],
            "update_fields": ["order"],
        }
        items = [Item(order=two, number=50), Item(order=two, number=51)]
        self.assertEqual(Item.objects.bulk_create(items, **how), items)
        self.assertEqual(items[0].pk, before.pk)
        found = Item.objects.order_by("number").values_list("pk", "order")
        self.assertEqual(list(found), [(each.pk, two.pk) for each in items])
        (alone,) = Item.objects.bulk_create([Item(order=one, number=51)], **how)
        self.assertEqual(alone.pk, items[1].pk)
        features = "can_return_rows_from_bulk_insert"
        with patch.object(type(connection.features), features, new=False):  # as on MySQL
            (unknown,) = Item.objects.bulk_create([Item(order=two, number=51)], **how)
        self.assertIsNone(unknown.pk)

    def test_saving_gives_the_id(self) -> None:
        order = Order(title="a")
        self.assertIsNone(order.pk)
        with CaptureQueriesContext(connection) as queries:
            order.save()
        self.assertEqual(order.pk, 1)
        self.assertEqual(len(queries), 1)  # no UPDATE before
        self.assertNotIn("RETURNING", queries[0]["sql"])
        with self.assertNumQueries(1):
            order.save()
        self.assertEqual(Order.objects.get().pk, 1)
        self.assertEqual(Order.objects.create(title="b").pk, 2)

    def test_ids_are_the_same_in_each_test(self) -> None:
        self.assertEqual([Order.objects.create().pk for _ in range(3)], [1, 2, 3])

    def test_a_given_id_is_kept(self) -> None:
        self.assertEqual(Order.objects.create(pk=BIG).pk, BIG)
        self.assertEqual(Order.objects.get().pk, BIG)

    def test_a_copy_gets_an_id_of_its_own(self) -> None:
        order = Order.objects.create(title="a")
        order.pk, order._state.adding = None, True
        order.save()
        self.assertEqual(list(Order.objects.order_by("pk").values_list("pk")), [(1,), (2,)])

    def test_get_or_create(self) -> None:
        first, is_new = Order.objects.get_or_create(title="a")
        self.assertTrue(is_new)
        self.assertEqual(Order.objects.get_or_create(title="a"), (first, False))
        self.assertEqual(Order.objects.update_or_create(title="a"), (first, False))
        tag, _ = Tag.objects.update_or_create(name="b")
        self.assertEqual(tag.pk, first.pk + 1)  # models without a generator of their own share one

    def test_relations(self) -> None:
        order = Order.objects.create(title="a")
        tag = Tag.objects.create(name="b")
        order.tags.add(tag)
        item = order.items.create()
        self.assertEqual(Order.objects.get(tags=tag, items=item), order)
        self.assertEqual(Item.objects.select_related("order").get().order, order)
        through = Order.tags.through
        for model in (through, MigrationRecorder.Migration):  # tables of Django's own
            self.assertNotIsInstance(model._meta.pk, CosIdField)

    def test_an_inheriting_model_has_the_key_of_its_base(self) -> None:
        gift = GiftOrder.objects.create(title="a", card="b")
        self.assertEqual((gift.pk, gift.id, gift.order_ptr_id), (1, 1, 1))
        gift.save()
        self.assertEqual(Order.objects.get().giftorder, gift)

    def test_a_snowflake(self) -> None:
        first, second = Event.objects.create(), Event.objects.create()
        self.assertGreater(second.pk, first.pk)
        self.assertGreater(first.pk, BIG)

    def test_a_rolled_back_row_leaves_a_gap(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            Order.objects.create()
            raise ZeroDivisionError
        self.assertEqual(Order.objects.create().pk, 2)

    def test_the_database_numbers_nothing(self) -> None:
        with connection.cursor() as cursor:
            table = Order._meta.db_table
            sequences = connection.introspection.get_sequences(cursor, table)
        if connection.vendor == "postgresql":
            self.assertEqual(sequences, [])


class BulkTests(IdsFromOne, TestCase):
    def test_a_thousand_rows(self) -> None:
        with self.assertNumQueries(1) if connection.vendor == "postgresql" else self.subTest():
            orders = Order.objects.bulk_create([Order(title="x") for _ in range(1000)])
        self.assertEqual([each.pk for each in orders], list(range(1, 1001)))
        self.assertEqual(Order.objects.count(), 1000)

    def test_the_query_set_takes_all_ids_at_once(self) -> None:
        order = Order.objects.create()
        counter = Counter()
        with self.settings(AIOCOSID={"shop.item": counter, "number": Counter()}):
            rows = [Item(order=order), Item(pk=7000, order=order), Item(order=order)]
            Item.objects.bulk_create(rows)
            self.assertEqual([each.pk for each in rows], [1, 7000, 2])
            self.assertEqual(counter.calls, 1)
            order.items.bulk_create([Item(order=order)])
        self.assertEqual(counter.calls, 2)

    def test_a_row_that_conflicts_is_left_out(self) -> None:
        tags = [Tag(name=name) for name in "aba"]
        Tag.objects.bulk_create(tags, ignore_conflicts=True)
        self.assertEqual(list(Tag.objects.order_by("pk").values_list("name")), [("a",), ("b",)])


class FixtureTests(IdsFromOne, TestCase):
    def test_rows_are_dumped_and_loaded_with_their_ids(self) -> None:
        order = Order.objects.create(pk=BIG, title="a")
        order.tags.add(Tag.objects.create(name="b"))
        gift = GiftOrder.objects.create(title="c", card="d")
        dumped = StringIO()
        call_command("dumpdata", "shop", stdout=dumped)
        Order.objects.all().delete()
        for each in serializers.deserialize("json", dumped.getvalue()):
            each.save()
        self.assertEqual(Order.objects.get(tags__name="b").pk, BIG)
        self.assertEqual(GiftOrder.objects.get(), gift)

    def test_natural_keys_leave_the_id_to_the_generator(self) -> None:
        given = json.dumps([{"model": "shop.order", "fields": {"title": "a"}}])
        for each in serializers.deserialize("json", given):
            each.save()
        self.assertEqual(Order.objects.get().pk, 1)


class AdminTests(IdsFromOne, TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.client.force_login(User.objects.create_superuser("root"))

    def test_a_row_is_added_and_changed(self) -> None:
        form = self.client.get("/admin/shop/order/add/").content.decode()
        self.assertIn('name="title"', form)
        self.assertNotIn('name="id"', form)
        items = {"items-TOTAL_FORMS": 0, "items-INITIAL_FORMS": 0}
        reply = self.client.post("/admin/shop/order/add/", {"title": "a", **items})
        self.assertEqual(reply.status_code, 302, reply.content)
        order = Order.objects.get()
        self.assertEqual(order.pk, 1)
        reply = self.client.post(f"/admin/shop/order/{order.pk}/change/", {"title": "b", **items})
        self.assertEqual(reply.status_code, 302, reply.content)
        self.assertEqual(Order.objects.get().title, "b")

    def test_links_are_right_above_what_javascript_can_hold(self) -> None:
        order = Order.objects.create(pk=BIG, title="a")
        with self.settings(USE_THOUSAND_SEPARATOR=True):
            page = self.client.get("/admin/shop/order/").content.decode()
            self.assertIn(f'href="/admin/shop/order/{BIG}/change/"', page)
            self.assertIn(f'value="{BIG}"', page)  # of the box that selects the row
            page = self.client.get(f"/admin/shop/order/{BIG}/change/").content.decode()
            self.assertIn(f'href="/admin/shop/order/{BIG}/delete/"', page)
            page = self.client.get("/admin/shop/event/add/").content.decode()
            self.assertIn(f'value="{BIG}"', page)  # of the rows that an event may have
        self.client.post("/admin/shop/event/add/", {"order": str(BIG)})
        self.assertEqual(Event.objects.get().order, order)

    def test_an_inline_row_names_its_id(self) -> None:
        with self.settings(AIOCOSID={"__share__": Counter(BIG), "number": Counter()}):
            order = Order.objects.create(title="a")
            url = f"/admin/shop/order/{order.pk}/change/"
            order.items.create()
            page = self.client.get(url).content.decode()
        self.assertIn(f'<input type="hidden" name="items-0-id" value="{BIG + 2}"', page)


class ApiTests(IdsFromOne, TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.api = APIClient()

    def test_ids_are_text_and_come_back_from_text(self) -> None:
        order = Order.objects.create(pk=BIG, title="a")
        tag = Tag.objects.create(pk=BIG + 2, name="b")
        made = self.api.post("/api/item/", {"order": f"{BIG}"}, format="json").json()
        self.assertEqual(made, {"id": "1", "order": f"{BIG}", "number": "1"})
        self.assertEqual(Item.objects.get().order, order)
        url = f"/api/order/{BIG}/"
        changed = self.api.patch(url, {"tags": [f"{BIG + 2}"]}, format="json").json()
        expected = {"id": f"{BIG}", "title": "a", "items": ["1"], "tags": [f"{BIG + 2}"]}
        self.assertEqual(changed, expected)
        self.assertEqual(self.api.get(url).json(), expected)
        self.assertEqual(order.tags.get(), tag)

    def test_a_snowflake_is_text(self) -> None:
        GiftOrder.objects.create(pk=BIG, title="a", card="b")
        given = {"order": None, "gift": f"{BIG}"}
        made = self.api.post("/api/event/", given, format="json").json()
        self.assertEqual(made, {"id": f"{Event.objects.get().pk}", **given})

    def test_an_id_cannot_be_given_and_a_wrong_one_is_refused(self) -> None:
        given = {"id": f"{BIG}", "title": "a"}
        made = self.api.post("/api/order/", {**given, "tags": []}, format="json").json()
        self.assertEqual(made["id"], "1")
        for wrong in ("1.5", "-1", f"{2**63}", "nine", True):
            reply = self.api.post("/api/item/", {"order": wrong}, format="json")
            self.assertEqual((reply.status_code, list(reply.json())), (400, ["order"]), wrong)
        reply = self.api.post("/api/item/", {"order": "77"}, format="json")
        self.assertIn("does not exist", reply.json()["order"][0])

    def test_the_browsable_pages_and_their_forms(self) -> None:
        Order.objects.create(pk=BIG, title="a")
        page = self.api.get("/api/item/", HTTP_ACCEPT="text/html").content.decode()
        self.assertIn(f'<option value="{BIG}"', page)


class ViewTests(IdsFromOne, TransactionTestCase):
    """Not in a transaction: an asynchronous view saves in a thread of its own."""

    def test_a_synchronous_view(self) -> None:
        self.assertEqual(self.client.get("/create").json()["id"], 1)

    async def test_an_asynchronous_view(self) -> None:
        reply = (await self.async_client.get("/acreate")).json()
        self.assertEqual(reply["ids"], [1, 2, 3, 4, 5])
        self.assertEqual(reply["item"], 1)

    async def test_what_would_block_says_what_to_write(self) -> None:
        error = (await self.async_client.get("/blocking")).json()["error"]
        self.assertIn("await sync_to_async(Model)(...)", error)

    async def test_saving_on_the_loop_says_what_to_write(self) -> None:
        with self.assertRaisesRegex(WouldBlock, r"await obj\.asave\(\)"):
            Order(title="a").save()
