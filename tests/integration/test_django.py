"""Defaults that take ids, the checks of ``manage.py``, and which generator a field finds."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import django
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.checks import ERROR, WARNING, run_checks
from django.core.management import call_command
from django.db import connections, models
from django.db.migrations.writer import MigrationWriter
from django.test import override_settings
from django.test.utils import isolate_apps

import aiocosid
import aiocosid.sync
from aiocosid.errors import InvalidArgumentError, WouldBlock
from aiocosid.integrations.django import (
    CosIdDefault,
    CosIdField,
    CosIdQuerySet,
    ShardedField,
    SnowflakeField,
)
from aiocosid.sharding import ModCycle
from aiocosid.snowflake import ShardedLayout
from aiocosid.stores.memory import MemoryStore
from aiocosid.sync import SyncProvider

pytestmark = [pytest.mark.integration]

PROJECT = Path(__file__).with_name("_django_project")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The project of the tests in this process, on files of its own, with its tables made."""
    folder = tmp_path_factory.mktemp("project")
    before = Path.cwd()
    os.chdir(folder)
    sys.path.insert(0, str(PROJECT))
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "IDS_URL": f"sqlite:///{folder}/ids.db",
    }
    django.setup()
    settings.DATABASES["default"]["NAME"] = f"{folder}/app.db"
    call_command("migrate", run_syncdb=True, verbosity=0)
    os.chdir(before)
    yield
    connections.close_all()
    settings.AIOCOSID.close()
    sys.path.remove(str(PROJECT))
    for name in [each for each in sys.modules if each.split(".")[0] == "shop"]:
        del sys.modules[name]  # pages have modules of this name too
    del os.environ["DJANGO_SETTINGS_MODULE"], os.environ["IDS_URL"]


@pytest.fixture
def note(project: None) -> Iterator[Any]:
    """A model whose key has a default; its table is empty."""
    from shop.models import MachineRecord  # type: ignore[import-not-found]

    MachineRecord.objects.all().delete()
    yield MachineRecord
    connections.close_all()


def test_an_object_has_its_id_before_it_is_saved(note: Any) -> None:
    """A given one is kept, also by create; a saved one is not numbered anew."""
    first, second = note(title="a"), note(title="b")
    assert 0 < first.id < second.id
    second.save()
    assert note.objects.get().id == second.id
    assert note.objects.create(id=10**12).id == 10**12


def test_ten_thousand_rows_at_once(note: Any) -> None:
    made = note.objects.bulk_create([note(title="x") for _ in range(10_000)])
    assert len({each.id for each in made}) == 10_000
    assert note.objects.count() == 10_000


def test_threads_share_no_id(note: Any) -> None:
    def make(_: int) -> list[int]:
        return [note().id for _ in range(1000)]

    with ThreadPoolExecutor(8) as pool:
        ids = [new_id for some in pool.map(make, range(8)) for new_id in some]
    assert len(set(ids)) == 8000


def test_an_event_loop_is_never_blocked(note: Any) -> None:
    """Without an id in hand it says what to do; in a thread it works, and so do ids in hand."""
    fresh = aiocosid.sync.connect(MemoryStore())

    async def make() -> list[int]:
        with pytest.raises(WouldBlock, match=r"'note' is buffered, and.*acreate"):
            note()
        first = await sync_to_async(note)()
        return [first.id, note().id]

    async def misname() -> None:
        with pytest.raises(WouldBlock, match=r"'note' is buffered.*AIOCOSID has no such"):
            note()

    with override_settings(AIOCOSID={"note": fresh.segment_chain("note")}):
        assert asyncio.run(make()) == [1, 2]
    other = aiocosid.sync.connect(MemoryStore())
    with override_settings(AIOCOSID=other):
        asyncio.run(misname())
        with pytest.raises(InvalidArgumentError, match="'note'"):
            note()
    fresh.close()
    other.close()


def test_the_settings_are_checked_when_an_id_is_needed(note: Any) -> None:
    """A missing one, a missing name, and a generator that has to be awaited."""
    wrong = aiocosid.SegmentChainId(MemoryStore().segment_distributor(namespace="n", name="note"))
    for given in ({}, {"note": wrong}, None):
        with (
            override_settings(AIOCOSID=given),
            pytest.raises(InvalidArgumentError, match=r"AIOCOSID\['note'\] must be a Sync"),
        ):
            note()
    with override_settings():
        del settings.AIOCOSID
        with pytest.raises(InvalidArgumentError, match="AIOCOSID"):
            note()


def test_a_migration_keeps_the_name(project: None) -> None:
    """It is written as source, read back equal, and a change of settings is no change of it."""
    written: Any = MigrationWriter.serialize(CosIdDefault("note"))
    text, imports = written
    assert text == "aiocosid.integrations.django.CosIdDefault('note')"
    assert imports == {"import aiocosid.integrations.django"}
    assert CosIdDefault("note") == CosIdDefault("note") != CosIdDefault()
    default: Any = CosIdDefault("note")
    field = models.BigIntegerField(default=default)
    assert field.clone().deconstruct() == field.deconstruct()


def test_a_field_that_need_not_be_unique_is_warned_of(project: None) -> None:
    """By a check of Django's: a field added later would give all rows there the same id."""

    def field(**options: Any) -> Any:
        default: Any = CosIdDefault("note")
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


# Which generator a field finds


class Numbers:
    """Ids from a number on, and the texts of a generator's name."""

    def __init__(self, last: int) -> None:
        self._ids = count(last + 1)

    def next_id(self) -> int:
        return next(self._ids)


def test_a_model_finds_its_own_generator_or_the_shared_one(note: Any) -> None:
    from shop.models import Event, Order, Tag  # pyright: ignore[reportMissingImports]

    given = {"shop.order": Numbers(100), "__share__": Numbers(200), "__snowflake__": Numbers(300)}
    with override_settings(AIOCOSID=given):
        made = [model.objects.create().pk for model in (Order, Tag, Event)]
    assert made == [101, 201, 301]


def test_a_named_field_finds_the_generator_of_that_name(project: None) -> None:
    """Also under the class of a field of which another is made."""
    with isolate_apps("shop"), override_settings(AIOCOSID={"box": Numbers(7)}):
        field = CosIdField(primary_key=True, generator="box")
        model = _model("Box", id=field)
        assert model._meta.pk.get_pk_value_on_save(model()) == 8
        copy = field.clone()
        assert copy.deconstruct()[3]["generator"] == "box"


def test_the_kind_of_the_field_is_the_kind_of_a_missing_generator(project: None) -> None:
    ids = aiocosid.sync.connect(MemoryStore())
    with isolate_apps("shop"), override_settings(AIOCOSID=ids):
        chain = _model("Chained", id=CosIdField(primary_key=True, generator="a"))
        flake = _model("Flake", id=SnowflakeField(primary_key=True, generator="b"))
        made = [each._meta.pk.get_pk_value_on_save(each()) for each in (chain, flake)]
    assert made[0] == 1
    assert made[1] > 2**53
    assert [type(each).__name__ for each in (ids["a"].statistics(), ids["b"].statistics())] == [
        "SegmentStatistics",
        "SnowflakeStatistics",
    ]
    ids.close()


# Ids that carry the shard of their row


class Shards:
    """Ids of sharded sequences, and how many of which shard were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self._sequences = count(1)

    def next_id(self, sharding_id: int) -> int:
        return self.next_ids(1, sharding_id)[0]

    def next_ids(self, n: int, sharding_id: int) -> list[int]:
        self.asked.append((n, sharding_id))
        return [
            SHARDED.compose(1_700_000_000, sharding_id, next(self._sequences)) for _ in range(n)
        ]


SHARDED = ShardedLayout(1_546_300_800)


def by_customer(row: Any) -> int:
    return ModCycle(4, "orders_").sharding_id(row.customer_id)


@contextmanager
def parcels(shard: Any) -> Generator[tuple[Any, Shards]]:
    """A model with its table, whose keys carry their shard, and where they come from."""
    queries: Any = CosIdQuerySet
    fields = {
        "id": ShardedField(primary_key=True, shard=shard),
        "customer_id": models.IntegerField(null=True),
        "objects": queries.as_manager(),
    }
    ids = Shards()
    with isolate_apps("shop"), override_settings(AIOCOSID={"__sharded__": ids}):
        model = _model("Parcel", **fields)
        with connections["default"].schema_editor() as editor:
            editor.create_model(model)
        yield model, ids
        with connections["default"].schema_editor() as editor:
            editor.delete_model(model)


def shards(made: Iterable[Any]) -> list[int]:
    return [SHARDED.parse(each.pk).sharding_id for each in made]


def test_a_key_carries_the_shard_of_its_row(project: None) -> None:
    """By an attribute or a function; `bulk_create` asks once for each shard."""
    customers = [7, 0, 7, 3]
    for shard, wanted in {"customer_id": customers, by_customer: [3, 0, 3, 3]}.items():
        with parcels(shard) as (parcel, ids):
            assert shards([parcel.objects.create(customer_id=6)]) == [by_customer_or(shard, 6)]
            made = [parcel(customer_id=each) for each in customers]
            given = parcel(id=4711)
            parcel.objects.bulk_create([*made, given])
            assert shards(made) == wanted
            assert made[0].pk < made[2].pk
            assert ids.asked[1:] == [(wanted.count(each), each) for each in dict.fromkeys(wanted)]
            models.QuerySet(parcel).bulk_create([parcel(customer_id=1), parcel(customer_id=2)])
            assert ids.asked[-2:] == [(1, 1), (1, 2)]
            assert parcel.objects.count() == 8


def by_customer_or(shard: Any, value: int) -> int:
    return value if isinstance(shard, str) else value % 4


def test_an_object_without_its_shard(project: None) -> None:
    """No id is taken, and none of its batch is saved."""
    with parcels("customer_id") as (parcel, ids):
        said = r"customer_id, the shard of shop\.Parcel\.id, must be an integer .*, not None"
        with pytest.raises(InvalidArgumentError, match=said):
            parcel.objects.create()
        with pytest.raises(InvalidArgumentError, match=said):
            parcel.objects.bulk_create([parcel(customer_id=1), parcel()])
        assert ids.asked == []
        assert not parcel.objects.exists()
    with (
        parcels("customer_id") as (parcel, _),
        override_settings(AIOCOSID={"__sharded__": Numbers(7)}),
        pytest.raises(InvalidArgumentError, match=r" 1 cannot be given: .* carry no shard"),
    ):
        parcel.objects.create(customer_id=1)


def test_the_kind_of_a_sharded_field(project: None, tmp_path: Path) -> None:
    """A provider of `connect` gets a missing one; one of a settings file is asked for the kind."""
    path = tmp_path / "ids.toml"
    path.write_text(
        'store = "memory://"\n[generators.__sharded__]\nkind = "sharded"\n'
        '[generators.plain]\nkind = "chain"\n'
    )
    connected = aiocosid.sync.connect(MemoryStore())
    configured = SyncProvider(lambda: aiocosid.configure(path))
    for ids in (connected, configured):
        with parcels("customer_id") as (parcel, _), override_settings(AIOCOSID=ids):
            made = [parcel(customer_id=each) for each in (7, 0, 7)]
            parcel.objects.bulk_create(made)
            last = parcel.objects.create(customer_id=4095)
            told = [ShardedLayout().parse(each.pk).sharding_id for each in (*made, last)]
            assert told == [7, 0, 7, 4095]
            with pytest.raises(InvalidArgumentError, match="from 0 to 4095"):
                parcel.objects.create(customer_id=4096)
    with isolate_apps("shop"), override_settings(AIOCOSID=configured):
        field = ShardedField(primary_key=True, generator="plain", shard="pk")
        model = _model("Plain", id=field)
        with pytest.raises(InvalidArgumentError, match=r"must be a ShardedId, not .*: other kinds"):
            model._meta.pk.get_pk_value_on_save(model(id=1))
    connected.close()
    configured.close()


def test_the_attribute_of_a_shard_is_checked(project: None) -> None:
    ids = {"__sharded__": Shards()}
    wrong = ShardedField(primary_key=True, shard="regoin")
    ((number, text),) = _checked(ids, id=wrong, region=models.IntegerField())
    assert number == "aiocosid.E002"
    assert text == "The shard is 'regoin', but the model has no such attribute."
    right = ShardedField(primary_key=True, shard="region")
    assert not _checked(ids, id=right, region=models.IntegerField())
    order = models.ForeignKey("shop.Order", models.CASCADE)
    assert not _checked(ids, id=ShardedField(primary_key=True, shard="order_id"), order=order)


def test_a_migration_keeps_the_shard(project: None) -> None:
    """By its name, or by that of the function; another one alters no column."""
    serialize: Any = MigrationWriter.serialize
    written, _ = serialize(ShardedField(primary_key=True, shard="region"))
    assert written == (
        "aiocosid.integrations.django.ShardedField(primary_key=True, shard='region')"
    )
    written, imports = serialize(ShardedField(primary_key=True, shard=by_customer))
    assert f"shard={__name__}.by_customer" in written
    assert f"import {__name__}" in imports
    editor = connections["default"].schema_editor(collect_sql=True)
    with isolate_apps("shop"):
        old, new = (
            _model(name, id=ShardedField(primary_key=True, shard=name))._meta.pk
            for name in ("one", "two")
        )
        new.column = old.column
        assert not editor._field_should_be_altered(old, new)


# What `manage.py check` says


def _model(name: str, **fields: Any) -> Any:
    meta = type("Meta", (), {"app_label": "shop"})
    return type(name, (models.Model,), {"__module__": "shop.models", "Meta": meta, **fields})


def _checked(ids: Any, level: int = ERROR, **fields: Any) -> list[tuple[str | None, str]]:
    """Return what the checks say of a model with these fields; it has to be of this level."""
    with isolate_apps("shop") as shop, override_settings(AIOCOSID=ids):
        _model("Box", **fields)
        found = run_checks(app_configs=shop.get_app_configs())
    ours = [each for each in found if str(each.id).startswith("aiocosid")]
    assert {each.level for each in ours} <= {level}
    return [(each.id, each.msg) for each in ours]


def _misnamed() -> Any:
    default: Any = CosIdDefault("ordr")
    return models.BigIntegerField(unique=True, default=default)


@pytest.mark.parametrize("ids", [{"order": Numbers(0), "item": Numbers(0)}, {}, None])
def test_a_missing_generator_is_an_error(project: None, ids: Any) -> None:
    """It has similar names, if there are any."""
    for field in (CosIdField(primary_key=True, generator="ordr"), _misnamed()):
        ((number, text),) = _checked(ids, box=field, **_key_beside(field))
        assert number == "aiocosid.E001"
        assert "'ordr'" in text
        assert ("use a similar name: 'order'" in text) == bool(ids)


def _key_beside(field: Any) -> dict[str, Any]:
    return {} if field.primary_key else {"id": models.BigAutoField(primary_key=True)}


def test_a_missing_generator_of_the_settings_file_is_an_error(
    project: None, tmp_path: Path
) -> None:
    """The names are known without opening anything."""
    path = tmp_path / "ids.toml"
    path.write_text('store = "memory://"\n[generators.order]\nkind = "segment"\n')
    ids = SyncProvider(lambda: aiocosid.configure(path))
    assert ids.described() == ("order",)
    ((number, text),) = _checked(ids, id=CosIdField(primary_key=True, generator="ordr"))
    assert number == "aiocosid.E001"
    assert "similar names: 'order'" in text
    assert not _checked(ids, id=CosIdField(primary_key=True, generator="order"))


def test_a_default_without_a_generator_is_warned_of_in_a_provider(project: None) -> None:
    """Somebody may ask the provider for it later; a `CosIdField` does so itself."""
    ids = aiocosid.sync.connect(MemoryStore())
    ids.segment_chain("order")
    fields = {"id": models.BigAutoField(primary_key=True), "box": _misnamed()}
    ((number, text),) = _checked(ids, level=WARNING, **fields)
    assert number == "aiocosid.W003"
    assert "similar names: 'order'" in text
    assert not _checked(ids, id=CosIdField(primary_key=True, generator="ordr"))


def test_the_label_of_a_model_that_is_missing_is_warned_of(project: None) -> None:
    """A renamed model would go on with the ids of the shared generator."""
    given = {"shop.ordr": Numbers(0)} | {
        name: Numbers(0) for name in ("__share__", "__snowflake__", "number", "note")
    }
    with override_settings(AIOCOSID=given):
        found = [each for each in run_checks() if str(each.id).startswith("aiocosid")]
    assert [each.id for each in found] == ["aiocosid.W002"]
    assert "'shop.ordr'" in found[0].msg
    assert "'shop.order'" in found[0].msg


# Migrations


def test_a_migration_keeps_the_class_and_the_name_of_the_generator(project: None) -> None:
    field = CosIdField(primary_key=True, generator="box")
    serialize: Any = MigrationWriter.serialize
    written, imports = serialize(field)
    assert written == ("aiocosid.integrations.django.CosIdField(generator='box', primary_key=True)")
    assert imports == {"import aiocosid.integrations.django"}
    written, _ = serialize(SnowflakeField(primary_key=True))
    assert written == "aiocosid.integrations.django.SnowflakeField(primary_key=True)"


def test_another_generator_alters_no_column(project: None) -> None:
    editor = connections["default"].schema_editor(collect_sql=True)
    with isolate_apps("shop"):
        old, new = (
            _model(name, id=CosIdField(primary_key=True, generator=name))._meta.pk
            for name in ("one", "two")
        )
        new.column = old.column
        assert not editor._field_should_be_altered(old, new)
