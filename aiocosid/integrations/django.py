"""Django: ids as field defaults, in synchronous and asynchronous views alike.

The generators are in the settings, by name::

    import aiocosid.sync

    ids = aiocosid.sync.connect("sqlite:///ids.db", namespace="shop")
    AIOCOSID = {"order": ids.segment_chain("order")}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from django.apps import apps
from django.conf import settings
from django.core import checks

from ..abc import SHARE, IdGenerator, TextIdGenerator
from ..errors import InvalidArgumentError, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("CosIdDefault",)


class CosIdDefault:
    """A field's default: ``BigIntegerField(primary_key=True, default=CosIdDefault("order"))``.

    An object has its id as soon as it is made, before it is saved.  Migrations contain only the
    name.

    When a field is added, Django calls the default once and writes the same id into all existing
    rows.  So the system check ``aiocosid.W001`` warns of a field that is neither the primary key
    nor unique.

    Attributes:
        name: the generator's name in ``settings.AIOCOSID``, a mapping or a `SyncProvider`.
    """

    def __init__(self, name: str = SHARE) -> None:
        """Name the generator; it is looked up when an object is made.

        Args:
            name: the generator's.
        """
        self.name = name

    def __call__(self) -> int | str:
        """Return the id of a new object.

        Raises:
            InvalidArgumentError: the settings have no generator for threads under this name.
            WouldBlock: no id is in hand, and the caller is on an event loop's thread, which must
                not wait.
            CosIdError: as the generator's ``next_id``.
        """
        try:
            return self._next_id()()
        except WouldBlock as error:
            # A provider for threads gives a handle for any name, and knows it when it is open.
            is_sure = isinstance(settings.AIOCOSID, Mapping)
            unsure = "" if is_sure else " (unless settings.AIOCOSID has no such generator)"
            error.args = (
                (
                    f"no id of {self.name!r} is in hand{unsure}, and an event loop runs in this "
                    "thread; make the object in another one: 'await Model.objects.acreate(...)', "
                    "or 'await sync_to_async(Model)(...)'"
                ),
            )
            raise

    def _next_id(self) -> Callable[[], int | str]:
        argument = f"settings.AIOCOSID[{self.name!r}]"
        try:
            found: Any = settings.AIOCOSID[self.name]
        except (AttributeError, KeyError, TypeError):
            found = None
        if found is None or isinstance(found, IdGenerator | TextIdGenerator):
            expected = "a SyncIdGenerator, as aiocosid.sync.connect(url).segment_chain(name)"
            raise InvalidArgumentError(argument, found, expected=expected)
        next_id: Callable[[], int | str] = found.next_id
        return next_id

    def deconstruct(self) -> tuple[str, tuple[str, ...], dict[str, str]]:
        """Return what migrations write: class, arguments, keywords."""
        return "aiocosid.integrations.django.CosIdDefault", (self.name,), {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CosIdDefault) and self.name == other.name

    def __hash__(self) -> int:
        return hash((CosIdDefault, self.name))

    def __repr__(self) -> str:
        return f"CosIdDefault({self.name!r})"


def _check_fields(app_configs: Any, **_: Any) -> list[checks.CheckMessage]:  # noqa: ANN401 - Django's
    """Warn of fields in which many rows would get the same id without an error."""
    configs = cast("Any", apps.get_app_configs() if app_configs is None else app_configs)
    return [
        checks.Warning(
            "CosIdDefault on a field that is neither the primary key nor unique: if the field is "
            "added to a table with rows, they all get the same id.",
            hint="Give it unique=True; for rows that are there, see 'Ids in a Django project'.",
            obj=field,
            id="aiocosid.W001",
        )
        for config in configs
        for model in config.get_models()
        for field in _repeatable(model._meta)
    ]


def _repeatable(options: Any) -> Iterator[Any]:  # noqa: ANN401 - a model's Options
    unique = {constraint.fields for constraint in options.total_unique_constraints}
    unique |= {(field.name,) for field in getattr(options, "pk_fields", ())}  # of a composite key
    for field in options.local_fields:
        is_ours = isinstance(getattr(field, "default", None), CosIdDefault)
        if is_ours and not field.unique and (field.name,) not in unique:
            yield field


cast("Any", checks).register(_check_fields, checks.Tags.models)
