"""System checks, which ``manage.py`` runs before most commands."""

# pyright: basic
# In strict mode each name of the framework would be an error, because it has no annotations.

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, cast

from django.apps import apps
from django.conf import settings
from django.core import checks

from ...errors import CosIdError
from ...sync import SyncIdProvider, SyncProvider
from ._default import CosIdDefault
from ._fields import ShardedField, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ._fields import CosIdField

__all__ = ()

HINT: Final = "See 'Ids in a Django project' in the documentation of aiocosid."


def _check_fields(app_configs: Any, **_: Any) -> list[checks.CheckMessage]:  # noqa: ANN401 - Django's
    """Find fields without a generator, and fields in which many rows would get the same id."""
    configs = cast("Any", apps.get_app_configs() if app_configs is None else app_configs)
    models = [model._meta for config in configs for model in config.get_models()]
    sources = [
        (field, source)
        for options in models
        for field in options.local_fields
        if (source := source_of(field)) is not None
    ]
    found = [message for field, source in sources for message in _missing(field, source)]
    found += [message for field, _ in sources for message in _lost(field)]
    found += [message for options in models for message in _repeatable(options)]
    if app_configs is None:
        labels = {model._meta.label_lower for model in apps.get_models()}
        found += _unused(labels.union(*(source.names for _, source in sources)))
    return found


def _missing(field: object, source: CosIdField | CosIdDefault) -> Iterator[checks.CheckMessage]:
    try:
        source.find()
        ids = settings.AIOCOSID
        known = ids.described() if isinstance(ids, SyncProvider) else ()
    except CosIdError as error:
        yield checks.Error(str(error), hint=HINT, obj=field, id="aiocosid.E001")
        return
    name = source.names[-1]
    if known and name not in known:
        text = f"settings.AIOCOSID has no generator {name!r}{_similar(name, known)}."
        # A provider from `connect` may get the generator elsewhere, before it is used.
        kind = checks.Warning if isinstance(ids, SyncIdProvider) else checks.Error
        number = "W003" if isinstance(ids, SyncIdProvider) else "E001"
        yield kind(text, hint=HINT, obj=field, id=f"aiocosid.{number}")


def _lost(field: Any) -> Iterator[checks.CheckMessage]:  # noqa: ANN401 - Django's
    if not isinstance(field, ShardedField) or not isinstance(field.shard, str):
        return
    if not hasattr(field.model, field.shard):
        yield checks.Error(
            f"The shard is {field.shard!r}, but the model has no such attribute.",
            hint="Name a field that holds the sharding id, as 'customer_id', or give a function.",
            obj=field,
            id="aiocosid.E002",
        )


def _repeatable(options: Any) -> Iterator[checks.CheckMessage]:  # noqa: ANN401 - a model's Options
    unique = {constraint.fields for constraint in options.total_unique_constraints}
    unique |= {(field.name,) for field in getattr(options, "pk_fields", ())}  # of a composite key
    for field in options.local_fields:
        is_ours = isinstance(getattr(field, "default", None), CosIdDefault)
        if is_ours and not field.unique and (field.name,) not in unique:
            yield checks.Warning(
                "CosIdDefault on a field that is neither the primary key nor unique: if the field "
                "is added to a table with rows, they all get the same id.",
                hint=f"Give it unique=True; for rows that are there: {HINT}",
                obj=field,
                id="aiocosid.W001",
            )


def _unused(names: set[str]) -> Iterator[checks.CheckMessage]:
    """Warn about a key that was the label of a model: a renamed model would take different ids."""
    ids = getattr(settings, "AIOCOSID", None)
    for key in ids if isinstance(ids, Mapping) else ():
        if "." in key and key not in names:
            yield checks.Warning(
                f"settings.AIOCOSID has {key!r}, but no model of that label{_similar(key, names)}.",
                hint="If the model was renamed, rename the key: its generator continues.",
                id="aiocosid.W002",
            )


def _similar(name: str, names: Iterable[str]) -> str:
    similar = get_close_matches(name, list(names))
    return f"; similar names: {', '.join(map(repr, similar))}" if similar else ""


cast("Any", checks).register(_check_fields, checks.Tags.models)
