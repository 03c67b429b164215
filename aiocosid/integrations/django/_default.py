"""A default that takes an id when an object is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...abc import SHARE
from ._generators import explaining_waits, find_generator

if TYPE_CHECKING:
    from ._generators import BlockingIds

__all__ = ("CosIdDefault",)

INSTEAD: Final = (
    "make the object in another one: 'await Model.objects.acreate(...)', or 'await "
    "sync_to_async(Model)(...)'"
)


class CosIdDefault:
    """A field's default: ``BigIntegerField(unique=True, default=CosIdDefault("number"))``.

    An object has its id as soon as it is created, before it is saved; for a primary key that is
    assigned when the object is saved, use a `CosIdField`.  Migrations contain only the name.

    When a field is added, Django calls the default once and writes the same id to all existing
    rows.  So the system check ``aiocosid.W001`` warns about a field that is neither the primary key
    nor unique.

    Attributes:
        name: the generator's name in ``settings.AIOCOSID``, a mapping or a `SyncProvider`.
    """

    def __init__(self, name: str = SHARE) -> None:
        """Store the name of the generator, which is looked up when an object is created.

        Args:
            name: the generator's name.
        """
        self.name = name

    def __call__(self) -> int | str:
        """Return the id of a new object.

        Raises:
            InvalidArgumentError: the settings have no generator for threads under this name.
            WouldBlock: no id is buffered, and the caller is on an event loop's thread, which must
                not wait.
            CosIdError: as for the generator's ``next_id``.
        """
        with explaining_waits(self.name, INSTEAD):
            return self.find().next_id()

    @property
    def names(self) -> tuple[str]:
        """The name of the generator."""
        return (self.name,)

    def find(self) -> BlockingIds:
        """Return the generator.

        Raises:
            InvalidArgumentError: the settings have no generator for threads under this name.
        """
        return find_generator(self.names)

    def deconstruct(self) -> tuple[str, tuple[str, ...], dict[str, str]]:
        """Return what migrations write: class, arguments and keywords."""
        return "aiocosid.integrations.django.CosIdDefault", (self.name,), {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CosIdDefault) and self.name == other.name

    def __hash__(self) -> int:
        return hash((CosIdDefault, self.name))

    def __repr__(self) -> str:
        return f"CosIdDefault({self.name!r})"
