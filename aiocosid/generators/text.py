"""Ids as text: a generator of numbers and a converter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..abc import IdConverter, IdGenerator, Statistics, TextIdGenerator
from ..abc.shards import check_shard
from ..errors import InvalidArgumentError
from .wrapped import DelegatingGenerator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("StringIdGenerator", "StringStatistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class StringStatistics(Statistics):
    """The statistics of a `StringIdGenerator`.

    Attributes:
        actual: the statistics of the wrapped generator.
        converter: the converter that formats the ids.
    """

    actual: Statistics
    converter: IdConverter

    def as_tree(self) -> dict[str, object]:
        """Return both in the format of CosId's actuator, ready for JSON."""
        return {
            "kind": self.kind,
            "actual": self.actual.as_tree(),
            "converter": self.converter.as_tree(),
        }


class StringIdGenerator(DelegatingGenerator[IdGenerator, str], TextIdGenerator):
    """Issues the ids of another generator as text.  CosId's StringIdGeneratorDecorator.

    It opens and closes that generator together with itself.  An id for which the converter has no
    text raises `InvalidIdError` and is lost as a gap; in a batch, all ids are lost.

    Attributes:
        converter: the converter that formats the ids, and reads them back with
            ``converter.as_int(id)``.
    """

    __slots__ = ("_one", "converter")

    _stretch = 500

    def __init__(self, generator: IdGenerator, converter: IdConverter) -> None:
        """Combine a generator and a converter.

        Args:
            generator: a generator that is not open, or stays open while this one is used.
            converter: the converter that formats the ids.

        Raises:
            InvalidArgumentError: an argument has the wrong type; or ids of two groups would have
                the same text, as 1 and 23 without a delimiter have the text of 12 and 3.
        """
        if not _is(generator, IdGenerator):
            raise InvalidArgumentError("generator", generator, "must be an IdGenerator")
        if not _is(converter, IdConverter):
            raise InvalidArgumentError("converter", converter, "must be an IdConverter")
        group_by = getattr(generator, "group_by", None)
        if group_by is not None and not group_by.has_one_width:
            inside: object = converter
            while inside is not None:
                check = getattr(inside, "_check_split", None)
                if check is not None:
                    check()
                inside = getattr(inside, "inner", None)
        super().__init__(generator)
        self._source = getattr(generator, "with_group", generator)
        self.converter: IdConverter = converter
        self._one: Callable[[int], str] = converter.as_str

    async def next_id(self, sharding_id: int | None = None) -> str:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`.

        Args:
            sharding_id: for a generator whose ids contain their shard; None for its own.
        """
        if sharding_id is None:
            return await super().next_id()
        return self._one(await self._sharded(sharding_id).next_id(sharding_id))

    async def next_ids(self, n: int, sharding_id: int | None = None) -> list[str]:
        """Return exactly ``n`` ids, or none; see `aiocosid.abc.IdGenerator.next_ids`.

        Args:
            n: the number of ids.
            sharding_id: as for `next_id`; the same for all of them.
        """
        if sharding_id is None:
            return await super().next_ids(n)
        return await self._made_of(self._sharded(sharding_id).next_ids(n, sharding_id))

    def next_id_nowait(self, sharding_id: int | None = None) -> str:
        """Return the next buffered id; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        if sharding_id is None:
            return super().next_id_nowait()
        return self._one(self._sharded(sharding_id).next_id_nowait(sharding_id))

    def _sharded(self, sharding_id: int) -> Any:  # noqa: ANN401 - its methods accept it
        check_shard(self._inner, sharding_id, "sharding_id")
        return self._inner

    def statistics(self) -> StringStatistics:
        """Return a frozen snapshot of generator and converter; cheap, and never waits."""
        actual = self._inner.statistics()
        return StringStatistics(
            kind=type(self).__name__,
            namespace=actual.namespace,
            name=actual.name,
            actual=actual,
            converter=self.converter,
        )

    def __repr__(self) -> str:
        """Show converter and generator."""
        return f"<{type(self).__name__} {self.converter!r} on {self._inner!r}>"

    def _many(self, ids: Sequence[int]) -> list[str]:
        return self.converter.convert_many(ids)


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind)
