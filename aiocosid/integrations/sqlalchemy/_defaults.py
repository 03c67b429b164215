"""The column default: an id for each row, one batch for each statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from sqlalchemy import Insert
from sqlalchemy.sql import visitors
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from ... import generator_named
from ...abc import SHARE, AnyGenerator, IdGenerator, TextIdGenerator
from ...errors import CosIdError, InvalidArgumentError, WouldBlock
from ...models import CosId
from ._passing import passing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column
    from sqlalchemy.engine.default import DefaultExecutionContext

    from ...abc import Provider

__all__ = ("CosIdDefault", "NamedSyncIds", "SyncIds", "cosid_default")


class SyncIds(Protocol):
    """A generator without ``await``, for a ``Session`` or ``Connection`` in a thread."""

    def next_id(self) -> Any:  # noqa: ANN401 - int or str, as the column
        """Return the next id."""
        raise NotImplementedError

    def next_ids(self, n: int, /) -> Sequence[Any]:
        """Return exactly ``n`` ids."""
        raise NotImplementedError


class NamedSyncIds(Protocol):
    """`SyncIds` by name, as a `SyncProvider` or a dict."""

    def __getitem__(self, name: str, /) -> SyncIds:
        """Return the generator of this name; KeyError if there is none."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CosIdDefault(CosId):
    """The result of `cosid_default`; it marks the column for `ensure_ids` as well.

    Attributes:
        given: the generator itself; it needs no name then.
        provider: where to look for the name.
    """

    given: AnyGenerator | SyncIds | None = field(default=None, hash=False)
    provider: Provider | NamedSyncIds | None = field(default=None, hash=False)

    def generator(self, provider: Provider | None = None) -> AnyGenerator:
        """Return the generator; its own provider goes before the one given."""
        found: Any = self.given  # it may be one for threads; the caller checks its type
        if found is None:
            where = cast(
                "Provider | None", self.provider if self.provider is not None else provider
            )
            try:
                found = generator_named(self.name, where)
            except KeyError:  # it cannot list its names either
                expected = f"one that {where!r} has"
                raise InvalidArgumentError("name", self.name, expected=expected) from None
        return cast("AnyGenerator", found)

    def __call__(self, context: DefaultExecutionContext) -> int | str:
        """Return the id of one row: SQLAlchemy asks once for each row of a statement."""
        kept: Any = context  # the ids of the statement's other rows are kept with it
        try:
            new_id: int | str = next(kept._aiocosid_ids[id(self)])
        except (AttributeError, KeyError, StopIteration):
            new_id = self._first(kept)
        return new_id

    def _first(self, context: Any) -> int | str:  # noqa: ANN401 - gets an attribute of ours
        try:
            if context.compiled is None:  # a default that is executed on its own
                (first,) = self._taken(1, None)
                return first
            column = getattr(context.current_column, "original", context.current_column)
            _check_statement(context, column)
            first, *others = self._taken(len(context.compiled_parameters), column)
        except CosIdError as error:
            raise passing(error) from error.__cause__
        if others:
            state: dict[str, dict[int, Any]] = context.__dict__
            state.setdefault("_aiocosid_ids", {})[id(self)] = iter(others)
        return first

    def _taken(self, rows: int, column: Column[Any] | None) -> Sequence[int | str]:
        generator: AnyGenerator | SyncIds = self.generator()
        if not isinstance(generator, IdGenerator | TextIdGenerator):  # pyright: ignore[reportUnnecessaryIsInstance]
            ids = generator.next_ids(rows) if rows > 1 else (generator.next_id(),)
            _check_kind(column, type(ids[0]), generator)
            return ids
        _check_kind(column, int if isinstance(generator, IdGenerator) else str, generator)
        if not in_greenlet():
            argument = f"the generator of {column if column is not None else self.name}"
            expected = "a SyncIdGenerator: this Session or Connection is not one of asyncio"
            raise InvalidArgumentError(argument, generator, expected=expected)
        if rows > 1:
            return await_only(generator.next_ids(rows))
        try:
            new_id: Any = generator.next_id_nowait()
        except WouldBlock:
            new_id = await_only(generator.next_id())
        return (new_id,)


def _check_statement(context: Any, column: Column[Any]) -> None:  # noqa: ANN401 - as `_first`
    """Refuse where SQLAlchemy asks for one id and writes it into all rows."""
    compiled = context.compiled  # SQLAlchemy keeps it for the next statement of this form
    if any(each is column for each in compiled.update_prefetch):
        expected = "a default alone: an UPDATE asks for it once, for all its rows"
        raise InvalidArgumentError(f"onupdate of {column}", "a cosid_default", expected=expected)
    if not hasattr(compiled, "_aiocosid_copied"):
        compiled._aiocosid_copied = {  # a mapped class's own copy of a table is equal to the table
            each.table
            for each in visitors.iterate(compiled.statement)
            if isinstance(each, Insert) and each.select is not None
        }
    if column.table in compiled._aiocosid_copied:
        expected = "given: a default is asked for once here, for all rows"
        raise InvalidArgumentError(f"{column}", "INSERT ... SELECT without it", expected=expected)


def _check_kind(column: Column[Any] | None, kind: type, generator: object) -> None:
    """Refuse numbers for a column of texts, and texts for one of numbers."""
    if column is None:
        return
    try:
        wanted = column.type.python_type
    except NotImplementedError:  # a type that does not say
        return
    if {wanted, kind} == {int, str}:
        argument = f"the generator of {column}"
        expected = f"one of {wanted.__name__}, as the column; this one's ids are {kind.__name__}"
        raise InvalidArgumentError(argument, generator, expected=expected)


def cosid_default(
    source: str | AnyGenerator | SyncIds = SHARE,
    *,
    provider: Provider | NamedSyncIds | None = None,
) -> CosIdDefault:
    """Return a column default that takes ids: ``mapped_column(default=cosid_default("order"))``.

    With an ``AsyncSession`` or ``AsyncConnection`` an id in hand is taken without waiting, and the
    generator is awaited otherwise.  A statement with many rows takes all its ids by one
    ``next_ids(n)``.  The ids of a statement that fails or is cancelled are a gap.

    Without asyncio, in a ``Session`` or ``Connection``, the generator has to be one that needs no
    ``await``, as `SyncIdGenerator`.

    Args:
        source: a generator's name, looked up when a row is inserted; or a generator.
        provider: where to look for the name; the default provider if none is given.
    """
    if isinstance(source, str):
        return CosIdDefault(source, provider=provider)
    return CosIdDefault(f"<{type(source).__name__}>", given=source)
