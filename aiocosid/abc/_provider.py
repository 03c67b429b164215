"""What applications and frameworks ask for generators by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from ._ids import IdGenerator
from ._text import TextIdGenerator

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("SHARE", "AnyGenerator", "Provider")

SHARE: Final = "__share__"
"""The name of the default generator; CosId's own (``IdGeneratorProvider.SHARE``)."""

AnyGenerator: TypeAlias = IdGenerator | TextIdGenerator
"""A generator of either kind."""


@runtime_checkable
class Provider(Protocol):
    """Named generators, opened and closed together: `IdProvider`, and what `configure` builds."""

    def __getitem__(self, name: str, /) -> AnyGenerator:
        """Return the generator of this name; KeyError if there is none."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Count the generators."""
        raise NotImplementedError

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Return a tree ready for JSON, by name, as CosId's actuator shows it; never waits."""
        raise NotImplementedError
