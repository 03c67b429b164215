"""The project of docs/howto/django.md: views of both kinds, bulk, threads and migrations.

Over HTTP, and with its migrations, it runs where the page does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import django
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection, connections, models
from django.db.migrations.writer import MigrationWriter
from django.test import AsyncClient, Client, override_settings
from django.test.utils import isolate_apps

import aiocosid
import aiocosid.sync
from aiocosid.errors import InvalidArgumentError, WouldBlock
from aiocosid.integrations.django import CosIdDefault
from aiocosid.stores.memory import MemoryStore
from tests.docs._blocks import ROOT, blocks

pytestmark = [pytest.mark.integration]

PAGE = ROOT / "docs" / "howto" / "django.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The page's project, on files of its own, with its table made."""
    folder = tmp_path_factory.mktemp("project")
    for block in blocks(PAGE):
        path = folder / (block.title or "")
        if not path.exists() and "migrations" not in path.parts:  # the page changes them later
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.source.replace("app.db", f"{folder}/app.db"))
    sys.path.insert(0, str(folder))
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "IDS_URL": f"sqlite:///{folder}/ids.db",
    }
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    yield
    connections.close_all()
    sys.modules["shop.settings"].ids.close()
    sys.path.remove(str(folder))
    for name in [each for each in sys.modules if each.split(".")[0] == "shop"]:
        del sys.modules[name]  # pages have modules of this name too
    del os.environ["DJANGO_SETTINGS_MODULE"], os.environ["IDS_URL"]


@pytest.fixture
def order(project: None) -> Iterator[Any]:
    """The page's model, its table empty."""
    from shop.models import Order  # type: ignore[import-not-found]

    Order.objects.all().delete()
    yield Order
    connections.close_all()


def test_both_kinds_of_views_make_objects_with_ids(order: Any) -> None:
    """By Django's own clients, one of WSGI and one of ASGI."""

    async def ask() -> list[int]:
        client: Any = AsyncClient(headers={"host": "localhost"})
        replies = await asyncio.gather(*(client.post("/orders/async") for _ in range(5)))
        return [reply.json()["id"] for reply in replies]

    with override_settings(ALLOWED_HOSTS=["localhost", "testserver"]):
        client: Any = Client()
        ids = [client.post("/orders").json()["id"], *asyncio.run(ask())]
        ids += client.post("/orders/bulk").json()["ids"]
    assert len(set(ids)) == 9
    assert sorted(ids) == sorted(order.objects.values_list("id", flat=True))


def test_an_object_has_its_id_before_it_is_saved(order: Any) -> None:
    """A given one is kept, also by create; a saved one is not numbered anew."""
    first, second = order(title="a"), order(title="b")
    assert 0 < first.id < second.id
    second.save()
    assert order.objects.get().id == second.id
    assert order.objects.create(id=10**12).id == 10**12


def test_ten_thousand_rows_at_once(order: Any) -> None:
    made = order.objects.bulk_create([order(title="x") for _ in range(10_000)])
    assert len({each.id for each in made}) == 10_000
    assert order.objects.count() == 10_000


def test_threads_share_no_id(order: Any) -> None:
    def make(_: int) -> list[int]:
        return [order().id for _ in range(1000)]

    with ThreadPoolExecutor(8) as pool:
        ids = [new_id for some in pool.map(make, range(8)) for new_id in some]
    assert len(set(ids)) == 8000


def test_an_event_loop_is_never_blocked(order: Any) -> None:
    """Without an id in hand it says what to do; in a thread it works, and so do ids in hand."""
    fresh = aiocosid.sync.connect(MemoryStore())

    async def make() -> list[int]:
        with pytest.raises(WouldBlock, match=r"'order' is in hand, and.*acreate"):
            order()
        first = await sync_to_async(order)()
        return [first.id, order().id]

    async def misname() -> None:
        with pytest.raises(WouldBlock, match=r"'order' is in hand.*AIOCOSID has no such"):
            order()

    with override_settings(AIOCOSID={"order": fresh.segment_chain("order")}):
        assert asyncio.run(make()) == [1, 2]
    other = aiocosid.sync.connect(MemoryStore())
    with override_settings(AIOCOSID=other):
        asyncio.run(misname())
        with pytest.raises(InvalidArgumentError, match="'order'"):
            order()
    fresh.close()
    other.close()


def test_the_settings_are_checked_when_an_id_is_needed(order: Any) -> None:
    """A missing one, a missing name, and a generator that has to be awaited."""
    wrong = aiocosid.SegmentChainId(MemoryStore().segment_distributor(namespace="n", name="order"))
    for given in ({}, {"order": wrong}, None):
        with (
            override_settings(AIOCOSID=given),
            pytest.raises(InvalidArgumentError, match=r"AIOCOSID\['order'\] is .*SyncIdGenerator"),
        ):
            order()
    with override_settings():
        del settings.AIOCOSID
        with pytest.raises(InvalidArgumentError, match="AIOCOSID"):
            order()


def test_a_migration_keeps_the_name(project: None) -> None:
    """It is written as source, read back equal, and a change of settings is no change of it."""
    written: Any = MigrationWriter.serialize(CosIdDefault("order"))
    text, imports = written
    assert text == "aiocosid.integrations.django.CosIdDefault('order')"
    assert imports == {"import aiocosid.integrations.django"}
    assert CosIdDefault("order") == CosIdDefault("order") != CosIdDefault()
    default: Any = CosIdDefault("order")
    field = models.BigIntegerField(default=default)
    assert field.clone().deconstruct() == field.deconstruct()


def test_a_field_that_need_not_be_unique_is_warned_of(project: None) -> None:
    """By a check of Django's: a field added later would give all rows there the same id."""

    def field(**options: Any) -> Any:
        default: Any = CosIdDefault("order")
        return models.BigIntegerField(default=default, **options)

    one = models.UniqueConstraint(fields=["c"], name="one_c")
    some = models.UniqueConstraint(fields=["d"], name="one_d", condition=models.Q(d__gt=7))
    fields = {"a": field(primary_key=True), "b": field(unique=True), "c": field(), "d": field()}
    meta = type("Meta", (), {"constraints": [one, some]})
    with isolate_apps("shop") as shop:
        type("Numbered", (models.Model,), {"__module__": "shop.models", "Meta": meta, **fields})
        found = run_checks(app_configs=shop.get_app_configs())
    assert [(each.id, str(each.obj)) for each in found if str(each.id).startswith("aiocosid")] == [
        ("aiocosid.W001", "shop.Numbered.d")
    ]
    assert not [each for each in run_checks() if str(each.id).startswith("aiocosid")]


def test_the_folder_holds_what_the_page_shows(order: Any) -> None:
    """The table is the page's; on SQLite its key is 64 bits."""
    with connection.cursor() as cursor:
        columns: Any = connection.introspection.get_table_description(cursor, "shop_order")
    assert [column.name for column in columns] == ["id", "title"]
    assert Path(settings.DATABASES["default"]["NAME"]).exists()
