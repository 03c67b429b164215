"""The methods of `SyncIdProvider`, made from the kinds of generators."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, overload

from ..provider.specs import KindMethod, NamedMethod

if TYPE_CHECKING:
    from ..abc import AnyGenerator, IdConverter, IdGenerator, TextIdGenerator
    from ..provider.specs import Kind
    from ..snowflake import ShardedId
    from ._generator import SyncIdGenerator
    from ._sharded import SyncShardedId

__all__ = ("named", "numbers", "sharded", "shared", "text", "texts")

P = ParamSpec("P")
Id = TypeVar("Id", int, str)
M_co = TypeVar("M_co", covariant=True)


class BatchMethod(KindMethod[M_co]):
    """A method that accepts how many ids are taken from the generator at once."""

    _takes_batch = True


class NamedInBatches(Protocol[P]):
    """A method of a kind that requires a name."""

    @overload
    def __call__(
        self,
        name: str,
        converter: None = ...,
        batch: int | None = ...,
        *args: P.args,
        **options: P.kwargs,
    ) -> SyncIdGenerator[int]: ...

    @overload
    def __call__(
        self,
        name: str,
        converter: IdConverter,
        batch: int | None = ...,
        *args: P.args,
        **options: P.kwargs,
    ) -> SyncIdGenerator[str]: ...


class SharedInBatches(Protocol[P]):
    """A method of a kind that has a default name."""

    @overload
    def __call__(
        self,
        name: str = ...,
        converter: None = ...,
        batch: int | None = ...,
        *args: P.args,
        **options: P.kwargs,
    ) -> SyncIdGenerator[int]: ...

    @overload
    def __call__(
        self,
        name: str,
        converter: IdConverter,
        batch: int | None = ...,
        *args: P.args,
        **options: P.kwargs,
    ) -> SyncIdGenerator[str]: ...

    @overload
    def __call__(
        self, converter: IdConverter, batch: int | None = ..., *args: P.args, **options: P.kwargs
    ) -> SyncIdGenerator[str]: ...


class PlainInBatches(Protocol[Id]):
    """A method of a kind that takes no further options."""

    def __call__(self, name: str, batch: int | None = ...) -> SyncIdGenerator[Id]:
        """Return the generator with this name, which the first use creates."""
        ...


class TextInBatches(Protocol[P]):
    """A method of a kind whose ids are text, and that has a default name."""

    def __call__(
        self, name: str = ..., batch: int | None = ..., *args: P.args, **options: P.kwargs
    ) -> SyncIdGenerator[str]:
        """Return the generator with this name, which the first use creates."""
        ...


def named(kind: Kind[P, AnyGenerator]) -> KindMethod[NamedInBatches[P]]:
    """Return the method of `SyncIdProvider` for a kind that requires a name."""
    return BatchMethod(kind)


def shared(kind: Kind[P, AnyGenerator]) -> KindMethod[SharedInBatches[P]]:
    """Return the method for a kind that has a default name."""
    return BatchMethod(kind)


def text(kind: Kind[P, TextIdGenerator]) -> KindMethod[TextInBatches[P]]:
    """Return the method for a kind whose ids are text, and that has a default name."""
    return BatchMethod(kind)


def numbers(kind: Kind[P, IdGenerator]) -> KindMethod[PlainInBatches[int]]:
    """Return the method for a kind of numbers that takes no options."""
    return BatchMethod(kind)


def texts(kind: Kind[P, TextIdGenerator]) -> KindMethod[PlainInBatches[str]]:
    """Return the method for a kind of texts that takes no options."""
    return BatchMethod(kind)


def sharded(
    kind: Kind[P, ShardedId],
) -> KindMethod[NamedMethod[P, SyncShardedId, SyncIdGenerator[str]]]:
    """Return the method for ids that contain their shard, which threads take one call at a time."""
    return KindMethod(kind)
