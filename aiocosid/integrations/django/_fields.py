"""Primary keys whose ids come from a generator when an object is saved."""

# pyright: basic
# In strict mode each name of the framework would be an error, because it has no annotations.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db import connections, models
from django.db.models.constants import OnConflict

from ...abc import SHARE
from ...abc.shards import shard_of
from ...sync import SyncShardedId
from ._default import CosIdDefault
from ._generators import explaining_waits, find_generator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...abc.shards import ShardRule
    from ...sync import SyncIdProvider
    from ._generators import BlockingIds

__all__ = ("CosIdField", "CosIdQuerySet", "ShardedField", "SnowflakeField", "source_of")

RECORDER: Final = "django.db.migrations.recorder"
INSTEAD: Final = (
    "await a method that saves in another one: 'await obj.asave()', "
    "'await Model.objects.acreate(...)', 'await Model.objects.abulk_create(...)'"
)


def given_when_saved() -> None:
    """Return no id for a new object; it gets one when it is saved.

    Because the field has a default, Django inserts a new object at once, without first trying an
    UPDATE.
    """


class CosIdField(models.BigAutoField):  # type: ignore[misc]  # Django has no annotations
    """A primary key with an id from a counter, for a model or as ``DEFAULT_AUTO_FIELD``.

    Saving an object whose key is None takes the id, as with Django's own automatic fields, but
    before the INSERT.  The column is a plain ``bigint``; the database generates no numbers.

    The ids come from the generator with the given name in ``settings.AIOCOSID``.  Without a name
    they come from the generator under the model's label, for example ``shop.order``, if
    ``AIOCOSID`` is a mapping with that key, and otherwise from ``__share__``.  In a provider from
    `aiocosid.sync.connect`, the first use creates a missing generator, a `SegmentChainId`.

    Saving raises the same errors as the generator's ``next_id``, including `WouldBlock` in a thread
    that runs an event loop.  A save that fails later, or is rolled back, leaves a gap.

    Attributes:
        generator: the given name, or None.
    """

    db_returning = False  # the database generates no id to return
    # Another name changes no column.
    non_db_attrs = (*models.BigAutoField.non_db_attrs, "generator")

    def __init__(self, *args: Any, generator: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - Django's
        """Describe the field.

        Args:
            *args: as for ``BigAutoField``.
            generator: the generator's name in ``settings.AIOCOSID``.
            **kwargs: as for ``BigAutoField``; with ``default=CosIdDefault(name)`` an object has its
                id when it is created.
        """
        kwargs.setdefault("default", given_when_saved)
        super().__init__(*args, **kwargs)
        self.generator = generator

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        """Return what migrations write: name, class, arguments and keywords."""
        name, path, args, kwargs = super().deconstruct()
        if kwargs["default"] is given_when_saved:
            del kwargs["default"]
        if self.generator is not None:
            kwargs["generator"] = self.generator
        return name, path.replace("django._fields.", "django."), args, kwargs

    def contribute_to_class(self, cls: Any, name: str, **kwargs: Any) -> None:  # noqa: ANN401 - Django's
        """Become a field of a model; tables that Django creates for itself keep their own numbers.

        These are the link tables of a ``ManyToManyField`` without ``through``, whose keys no
        migration can change, and the table of applied migrations.
        """
        if cls._meta.auto_created or cls.__module__ == RECORDER:
            plain = models.BigAutoField(verbose_name="ID", primary_key=True, auto_created=True)
            plain.contribute_to_class(cls, name, **kwargs)
        else:
            super().contribute_to_class(cls, name, **kwargs)

    def get_internal_type(self) -> str:
        """Return the kind of the column."""
        return "BigIntegerField"

    def get_pk_value_on_save(self, instance: object) -> int | str:
        """Return the id of an object that is saved without one."""
        with explaining_waits(self.names[-1], INSTEAD):
            generator: Any = self.find()
            new_id: int | str = generator.next_id(*self._shard_of(instance, generator))
        return new_id

    def assign(self, objects: Iterable[Any]) -> None:
        """Assign ids, in rising order in each shard, to the objects that have none."""
        wanted: dict[tuple[int, ...], list[Any]] = {}
        new = [each for each in objects if each.pk is None]
        if not new:
            return
        with explaining_waits(self.names[-1], INSTEAD):
            generator: Any = self.find()
            for each in new:
                wanted.setdefault(self._shard_of(each, generator), []).append(each)
            taken = [
                (group, generator.next_ids(len(group), *shard)) for shard, group in wanted.items()
            ]
        for group, ids in taken:
            for each, new_id in zip(group, ids, strict=True):
                each.pk = new_id

    def _shard_of(self, instance: object, generator: object) -> tuple[int, ...]:
        """Return the sharding id to pass to the generator, or an empty tuple."""
        del instance, generator
        return ()

    @property
    def names(self) -> Sequence[str]:
        """The names under which the settings may have the generator, in order of preference."""
        if self.generator is not None:
            return (self.generator,)
        return (self.model._meta.label_lower, self._shared_name)

    def find(self) -> BlockingIds:
        """Return the generator.

        Raises:
            InvalidArgumentError: the settings have no generator for this field.
        """
        return find_generator(self.names, self._create, self._kind)

    _kind: type[SyncShardedId] | None = None
    _shared_name = SHARE

    @staticmethod
    def _create(ids: SyncIdProvider, name: str) -> BlockingIds:
        return ids.segment_chain(name)


class SnowflakeField(CosIdField):
    """A primary key with a Snowflake id: a `CosIdField` that creates another kind of generator.

    In a provider from `aiocosid.sync.connect`, the first use creates a missing generator as a
    `SnowflakeId`.  Without a name the fields share ``__snowflake__``, so ids differ across all
    tables.
    """

    _shared_name = "__snowflake__"

    @staticmethod
    def _create(ids: SyncIdProvider, name: str) -> BlockingIds:
        return ids.snowflake(name)


class ShardedField(CosIdField):
    """A primary key whose id contains the shard of its object, from a `ShardedId`.

    In a provider from `aiocosid.sync.connect`, the first use creates a missing generator.  Without
    a name the fields share ``__sharded__``.  Saving also raises `InvalidArgumentError`, without
    taking an id, if the object has no sharding id that fits the generator's layout.

    Attributes:
        shard: the name of the attribute that holds an object's sharding id, or a function that
            returns it for an object.
    """

    non_db_attrs = (*CosIdField.non_db_attrs, "shard")

    def __init__(self, *args: Any, shard: ShardRule, **kwargs: Any) -> None:  # noqa: ANN401 - Django's
        """Describe the field.

        Args:
            *args: as for ``BigAutoField``.
            shard: the name of the attribute that holds an object's sharding id, for example the
                ``customer_id`` of a foreign key ``customer``; or a function of the object, which
                must be at the top level of a module if migrations should name it.
            **kwargs: as for `CosIdField`; without ``default``.
        """
        super().__init__(*args, **kwargs)
        self.shard = shard

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        """Return what migrations write: name, class, arguments and keywords."""
        name, path, args, kwargs = super().deconstruct()
        return name, path, args, {**kwargs, "shard": self.shard}

    def _shard_of(self, instance: object, generator: object) -> tuple[int, ...]:
        return (shard_of(instance, self.shard, generator, str(self)),)

    _kind = SyncShardedId
    _shared_name = "__sharded__"

    @staticmethod
    def _create(ids: SyncIdProvider, name: str) -> BlockingIds:
        return ids.sharded(name)


class CosIdQuerySet(models.QuerySet):  # type: ignore[misc]  # as above
    """Takes all ids of a ``bulk_create`` at once: ``objects = CosIdQuerySet.as_manager()``.

    Without it, Django takes them one by one.  That costs little while ids are buffered, as with a
    `SegmentChainId`, but for a `SnowflakeId` each id is a request to another thread.
    """

    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:  # noqa: ANN401 - Django's
        """Insert the objects, with ids from one ``next_ids`` call; otherwise as in Django.

        With ``update_conflicts``, an object whose row already existed has that row's key
        afterwards.  On a database that does not report the key, for example MySQL, all objects that
        got an id here have no key afterwards.
        """
        objects = list(objs)
        model: Any = self.model
        new: list[Any] = []
        if isinstance(model._meta.pk, CosIdField):
            new = [each for each in objects if each.pk is None]
            model._meta.pk.assign(objects)
        created: list[Any] = super().bulk_create(objects, *args, **kwargs)
        tells = connections[self.db].features.can_return_rows_from_bulk_insert
        if kwargs.get("update_conflicts") and not tells:
            for each in new:
                each.pk = None
        return created

    bulk_create.alters_data = True  # type: ignore[attr-defined]  # templates must not call it

    def _insert(
        self,
        objs: Sequence[Any],
        fields: Any,  # noqa: ANN401 - Django's
        returning_fields: Any = None,  # noqa: ANN401 - Django's
        **options: Any,  # noqa: ANN401 - Django's
    ) -> Any:  # noqa: ANN401 - Django's
        """Insert one batch; after an update, use the keys that the database returns."""
        model: Any = self.model
        key = model._meta.pk
        updates = options.get("on_conflict") == OnConflict.UPDATE
        if returning_fields is None or not updates or not isinstance(key, CosIdField):
            return super()._insert(objs, fields, returning_fields=returning_fields, **options)
        returning = [key, *returning_fields]
        rows = super()._insert(objs, fields, returning_fields=returning, **options)
        for each, row in zip(objs, rows, strict=True):
            each.pk = row[0]
        return [row[1:] for row in rows]

    _insert.alters_data = True  # type: ignore[attr-defined]
    _insert.queryset_only = False  # type: ignore[attr-defined]


def source_of(field: object) -> CosIdField | CosIdDefault | None:
    """Return the field or default that gives a model's field its ids, or None if it is not ours."""
    default = getattr(field, "default", None)
    if isinstance(default, CosIdDefault):
        return default
    return field if isinstance(field, CosIdField) else None
