"""The column default, primary keys that use it, and ids before the flush."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar, cast

from sqlalchemy import BigInteger, Insert, Integer, String, event
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.orm import Mapped, declared_attr, mapped_column
from sqlalchemy.sql import visitors
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from ...abc import SHARE, AnyGenerator, IdGenerator, TextIdGenerator
from ...abc.shards import ShardRule, shard_of
from ...converter import TypedId
from ...errors import CosIdError, InvalidArgumentError, WouldBlock
from ...provider.default import generator_named
from ...provider.models import GeneratedId, ensure_ids, id_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column
    from sqlalchemy.engine.default import DefaultExecutionContext
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session
    from sqlalchemy.types import TypeEngine

    from ...abc import Provider


__all__ = (
    "BIGINT",
    "CosIdDefault",
    "NamedSyncIds",
    "SegmentPrimaryKey",
    "SnowflakePrimaryKey",
    "SyncIds",
    "TextPrimaryKey",
    "assign_ids",
    "assign_ids_before_flush",
    "cosid_default",
    "passing",
)

_kinds: Final[dict[type, type[CosIdError]]] = {}


class _Passing(DontWrapMixin):
    """Lets an error pass through SQLAlchemy, which would wrap it in a ``StatementError``."""

    def __reduce__(self) -> Any:  # noqa: ANN401 - as CosIdError's
        """Pickle as the original error."""
        facts: Any = super().__reduce__()
        rebuild, (kind, *others) = facts
        return rebuild, (kind.__bases__[1], *others)


def passing(error: CosIdError) -> CosIdError:
    """Return a copy of an error that SQLAlchemy does not wrap; raise it from the same cause."""
    kind = type(error)
    if kind not in _kinds:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _kinds[kind] = type(kind.__name__, (_Passing, kind), names)
    copy = error.again()
    copy.__class__ = _kinds[kind]
    return copy


class SyncIds(Protocol):
    """A generator without ``await``, for a ``Session`` or ``Connection`` in a thread."""

    def next_id(self) -> int | str:
        """Return the next id."""
        raise NotImplementedError

    def next_ids(self, n: int, /) -> Sequence[int | str]:
        """Return exactly ``n`` ids."""
        raise NotImplementedError


class NamedSyncIds(Protocol):
    """`SyncIds` by name, for example a `SyncProvider` or a dict."""

    def __getitem__(self, name: str, /) -> SyncIds:
        """Return the generator with this name; raises KeyError if there is none."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CosIdDefault(GeneratedId):
    """The result of `cosid_default`; it also makes `ensure_ids` fill the column.

    Attributes:
        given: the generator itself, if it was passed instead of a name.
        provider: the provider in which to look up the name.
    """

    given: AnyGenerator | SyncIds | None = field(default=None, hash=False)
    provider: Provider | NamedSyncIds | None = field(default=None, hash=False)

    def generator(self, provider: Provider | None = None) -> AnyGenerator:
        """Return the generator; the default's own provider takes precedence over the argument."""
        found: Any = self.given  # perhaps one for threads; the caller checks its type
        if found is None:
            where = cast(
                "Provider | None", self.provider if self.provider is not None else provider
            )
            found = generator_named(self.name, where)
        return cast("AnyGenerator", found)

    def __call__(self, context: DefaultExecutionContext) -> int | str:
        """Return the id of one row; SQLAlchemy calls this once for each row of a statement."""
        kept: Any = context  # it stores the ids of the statement's other rows
        try:
            new_id: int | str = next(kept._aiocosid_ids[kept.current_column])
        except (AttributeError, KeyError, StopIteration):
            new_id = self._first(kept)
        return new_id

    def _first(self, context: Any) -> int | str:  # noqa: ANN401 - gets an attribute of ours
        try:
            if context.compiled is None:  # a default that is executed alone
                (first,) = self._taken(1, None)
                return first
            column = getattr(context.current_column, "original", context.current_column)
            _check_statement(context, column)
            if self.shard is None:
                first, *others = self._taken(len(context.compiled_parameters), column)
            else:
                first, *others = self._on_shards(self._rows(context), column, self.shard)
        except CosIdError as error:
            raise passing(error) from error.__cause__
        if others:
            state: dict[str, dict[object, Any]] = context.__dict__
            state.setdefault("_aiocosid_ids", {})[context.current_column] = iter(others)
        return first

    def _rows(self, context: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - as `_first`
        """Return the values of all rows, or only of the current one if defaults may set the shard.

        SQLAlchemy calls the defaults row by row, in the order of the columns.
        """
        defaults = [each.key for each in context.compiled.insert_prefetch]
        at = defaults.index(context.current_column.key)
        is_told = self.shard in defaults[:at] if isinstance(self.shard, str) else at > 0
        rows = context.compiled_parameters
        if is_told or len(rows) == 1 or rows[0] is not context.current_parameters:
            rows = [context.get_current_parameters()]
        unknown = frozenset(defaults[at:])
        return [{name: row[name] for name in row.keys() - unknown} for row in rows]

    def _on_shards(
        self, rows: list[dict[str, Any]], column: Column[Any], rule: ShardRule
    ) -> list[int | str]:
        generator = self.generator()
        shards = [shard_of(SimpleNamespace(**row), rule, generator, str(column)) for row in rows]
        taken = {
            shard: iter(self._taken(count, column, shard))
            for shard, count in Counter(shards).items()
        }
        return [next(taken[shard]) for shard in shards]

    def _taken(self, rows: int, column: Column[Any] | None, *shard: int) -> Sequence[int | str]:
        generator: Any = self.generator()
        if not isinstance(generator, IdGenerator | TextIdGenerator):
            taken = generator.next_ids(rows, *shard) if rows > 1 else (generator.next_id(*shard),)
            ids = cast("Sequence[int | str]", taken)
            return _written(_check_kind(column, type(ids[0]), generator), ids)
        kind = int if isinstance(generator, IdGenerator) else str
        wanted = _check_kind(column, kind, generator)
        if not in_greenlet():
            argument = f"the generator of {column if column is not None else self.name}"
            rule = "must be a SyncIdGenerator: this Session or Connection does not use asyncio"
            raise InvalidArgumentError(argument, generator, rule)
        if rows > 1:
            return _written(wanted, await_only(generator.next_ids(rows, *shard)))
        try:
            new_id: Any = generator.next_id_nowait(*shard)
        except WouldBlock:
            new_id = await_only(generator.next_id(*shard))
        return _written(wanted, (new_id,))


def _check_statement(context: Any, column: Column[Any]) -> None:  # noqa: ANN401 - as `_first`
    """Refuse statements for which SQLAlchemy would write one id to all rows."""
    compiled = context.compiled  # SQLAlchemy keeps it for later statements of this form
    if any(each is column for each in compiled.update_prefetch):
        rule = "cannot be cosid_default: an UPDATE would write one id into all its rows"
        raise InvalidArgumentError(f"onupdate of {column}", None, rule)
    if not hasattr(compiled, "_aiocosid_copied"):
        compiled._aiocosid_copied = {  # a mapped class's own copy of a table equals the table
            each.table
            for each in visitors.iterate(compiled.statement)
            if isinstance(each, Insert) and each.select is not None
        }
    if column.table in compiled._aiocosid_copied:
        rule = "is required in INSERT ... SELECT: its default would write one id into all rows"
        raise InvalidArgumentError(f"{column}", None, rule)


def _check_kind(column: Column[Any] | None, kind: type, generator: object) -> type | None:
    """Refuse numbers for a text column, and texts for a numeric column.

    Returns:
        The type of the column's values, as far as known.
    """
    if column is None:
        return None
    try:
        wanted = column.type.python_type
    except NotImplementedError:  # a type that does not tell
        return None
    if {wanted, kind} == {int, str}:
        argument = f"the generator of {column}"
        rule = f"must hand out {wanted.__name__}, the type of the column, not {kind.__name__}"
        raise InvalidArgumentError(argument, generator, rule)
    return wanted


def _written(wanted: type | None, ids: Sequence[int | str]) -> Sequence[int | str]:
    """Return ids as the column's type, since SQLAlchemy gives them to the objects unchanged."""
    if wanted is None or not issubclass(wanted, TypedId):
        return ids
    return [wanted(each) for each in ids]


def cosid_default(
    source: str | AnyGenerator | SyncIds = SHARE,
    *,
    shard: ShardRule | None = None,
    provider: Provider | NamedSyncIds | None = None,
) -> CosIdDefault:
    """Return a column default that takes ids: ``mapped_column(default=cosid_default("order"))``.

    With an ``AsyncSession`` or ``AsyncConnection``, a buffered id is taken at once; otherwise the
    generator is awaited.  A statement with many rows takes all its ids with one ``next_ids(n)``.
    The ids of a statement that fails or is cancelled are a gap.

    Without asyncio, in a ``Session`` or ``Connection``, the generator must be one that needs no
    ``await``, for example a `SyncIdGenerator`.

    Args:
        source: a generator's name, looked up when a row is inserted; or a generator.
        shard: for a generator whose ids contain their shard: the name of the column that holds the
            row's sharding id, or a function that returns it for a row, whose columns are
            attributes: ``lambda row: cycle.sharding_id(row.customer_id)``.  The statement takes its
            ids with one call for each shard.  By default the generator's own sharding id.
        provider: the provider in which to look up the name; the default provider if None.
    """
    if isinstance(source, str):
        return CosIdDefault(source, shard, provider=provider)
    return CosIdDefault(f"<{type(source).__name__}>", shard, given=source)


_T = TypeVar("_T")

BIGINT: Final = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits everywhere; on SQLite the type whose primary key is the rowid itself."""


class _Key(declared_attr[_T]):
    """Can be read on a mixin itself without a warning from SQLAlchemy."""

    if not TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401 - as its parent's
            return self if owner.__module__ == __name__ else super().__get__(instance, owner)


class SegmentPrimaryKey:
    """A mixin: ``id`` is a 64-bit primary key from the table's own counter.

    Attributes:
        __cosid__: the generator's name; by default the table's name.
    """

    __cosid__: ClassVar[str | None] = None

    @_Key
    def id(cls) -> Mapped[int]:  # noqa: N805 - SQLAlchemy calls it with the class
        """The primary key."""
        return _key(BIGINT, _name(cls))


class SnowflakePrimaryKey:
    """A mixin: ``id`` is a 64-bit primary key from one generator for all tables.

    Attributes:
        __cosid__: the generator's name; by default ``__share__``.
    """

    __cosid__: ClassVar[str] = SHARE

    @_Key
    def id(cls) -> Mapped[int]:  # noqa: N805 - as above
        """The primary key."""
        return _key(BIGINT, cls.__cosid__)


class TextPrimaryKey:
    """A mixin: ``id`` is a text primary key from a generator of texts.

    On MySQL give the table a binary collation, because the texts of two ids may differ only in
    case.

    Attributes:
        __cosid__: the generator's name; by default the table's name.
        __cosid_length__: the column's width in characters.
    """

    __cosid__: ClassVar[str | None] = None
    __cosid_length__: ClassVar[int] = 32

    @_Key
    def id(cls) -> Mapped[str]:  # noqa: N805 - as above
        """The primary key."""
        return _key(String(cls.__cosid_length__), _name(cls))


def _name(cls: Any) -> str:  # noqa: ANN401 - a mapped class
    name: str | None = cls.__cosid__ or getattr(cls, "__tablename__", None)
    if name is None:
        argument = f"__cosid__ of {cls.__module__}.{cls.__qualname__}"
        rule = "must be a generator's name: the class has no table name"
        raise InvalidArgumentError(argument, None, rule)
    return name


def _key(kind: TypeEngine[Any], name: str) -> Mapped[Any]:
    default = cosid_default(name)
    return mapped_column(
        kind, primary_key=True, autoincrement=False, default=default, sort_order=-1
    )


async def assign_ids(session: AsyncSession, provider: Provider | None = None) -> int:
    """Fill the empty ids of objects that were added to a session but not flushed yet.

    It is for keys that are needed before the flush.  See `aiocosid.ensure_ids`; objects whose class
    has no annotated id are ignored.

    Args:
        session: the session whose ``new`` objects to fill.
        provider: the provider of the generators; the default provider if None.

    Returns:
        How many ids were assigned.

    Raises:
        CosIdError: as for `aiocosid.provider.models.ensure_ids`.
    """
    return await ensure_ids(_with_fields(session.sync_session), provider)


def assign_ids_before_flush(
    sessions: async_sessionmaker[Any], provider: Provider | None = None
) -> None:
    """Make every flush of a factory's sessions begin with `assign_ids`.

    Then fields annotated with `GeneratedId` need no column default, and one ``next_ids(n)`` serves
    all statements of the flush.  The factory gets its own ``sync_session_class``.

    Args:
        sessions: the factory; sessions that it has already created are not changed.
        provider: the provider of the generators; the default provider if None.
    """
    base = sessions.kw.get("sync_session_class", sessions.class_.sync_session_class)
    own: type[Session] = type(base.__name__, (base,), {})
    sessions.configure(sync_session_class=own)

    def fill(session: Session, _context: object, _instances: object) -> None:
        objects = _with_fields(session)
        if objects:
            await_only(ensure_ids(objects, provider))

    event.listen(own, "before_flush", fill)


def _with_fields(session: Session) -> list[object]:
    """List the new objects whose class has an id that is generated here."""
    objects = list(session.new)
    fields = {model: id_fields(model) for model in set(map(type, objects))}
    return [each for each in objects if fields[type(each)]]
