"""Leaf's server (Meituan): ids of a tag, Snowflake ids, and its pages.

Differences from Leaf: a mode that is off is an error and never the id ``0``, as is a tag that
cannot issue ids.  ``/api/segment/get/{key}/{size}`` issues a contiguous range.
"""

from __future__ import annotations

import html
import json
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from ..._life.clock import SYSTEM_CLOCK
from ...abc import IdGenerator
from ...errors import (
    ClosedError,
    CosIdError,
    CounterMissingError,
    InvalidArgumentError,
    InvalidIdError,
    NotOpenError,
)
from ...segment import SegmentStatistics
from ...snowflake import LEAF, ShardedId, SnowflakeId
from .._http import TEXT, HttpAnswer, check_many, parts_of, query_of, whole
from .._problems import Problem
from .._tokens import TokenScope
from ._endpoint import Endpoint, gate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope

    from ...snowflake import SnowflakeLayout
    from .._service import Service

__all__ = ("routes",)

_HTML: Final = b"text/html; charset=utf-8"

_NOT_INITIALIZED: Final = -1
_UNKNOWN_TAG: Final = -2
_NOT_READY: Final = -3

_PACKAGE: Final = "com.sankuai.inf.leaf.server.exception."
_SEGMENT_OFF: Final = "You should config leaf.segment.enable=true first"
_NOT_AN_ID: Final = "snowflake Id反解析发生异常!"

_CACHE_COLUMNS: Final = (
    *("name", "init", "next", "pos"),
    *("value0", "max0", "step0", "value1", "max1", "step1"),
)
_DB_COLUMNS: Final = ("tag", "max", "step", "update")


def routes(
    service: Service,
    *,
    public: bool = False,
    prefix: str = "",
    segment: bool = True,
    snowflake: str = "snowflake",
) -> Sequence[BaseRoute]:
    """Return the routes, the busiest first.

    Args:
        service: the server.
        public: whether clients need no token; Leaf's clients have none.
        prefix: the prefix of each path.
        segment: whether ``/api/segment/get/{key}`` issues ids of the generator with that name, of
            any kind except a Snowflake; and whether Leaf's pages are shown.
        snowflake: the generator of ``/api/snowflake/get/{key}``; empty to refuse these requests.
    """
    leaf = _Leaf(service, public=public, prefix=prefix, segment=segment, snowflake=snowflake)
    paths = {
        "/api/segment/get/{key:path}": leaf.segment_id,
        "/api/snowflake/get/{key:path}": leaf.snowflake_id,
        "/decodeSnowflakeId": leaf.decode,
        "/cache": leaf.cache,
        "/db": leaf.db,
    }
    return [Route(f"{prefix}{path}", Endpoint(serve, _failed)) for path, serve in paths.items()]


class _ResultError(Problem):
    """A failure in the form of Leaf's ``Result``.

    Attributes:
        exception: the Java class that the body names.
    """

    def __init__(self, result: int) -> None:
        said = f"Result{{id={result}, status=EXCEPTION}}"
        super().__init__(HTTPStatus.INTERNAL_SERVER_ERROR, "leaf", said)
        self.exception = f"{_PACKAGE}LeafServerException"


class _SegmentOffError(_ResultError):
    """A request for a page of segments while that mode is off."""

    def __init__(self) -> None:
        Problem.__init__(self, HTTPStatus.INTERNAL_SERVER_ERROR, "leaf", _SEGMENT_OFF)
        self.exception = "java.lang.IllegalArgumentException"


def _failed(scope: Scope, error: Problem | CosIdError) -> HttpAnswer:
    """Return Spring's answer."""
    if not isinstance(error, Problem):
        error = _problem_of(error)
    facts: dict[str, object] = {
        "timestamp": SYSTEM_CLOCK.now_ms(),
        "status": int(error.status),
        "error": HTTPStatus(error.status).phrase,
    }
    if isinstance(error, _ResultError):
        facts["exception"] = error.exception
    facts |= {"message": error.detail or "No message available", "path": scope["path"]}
    return HttpAnswer(_compact(facts), status=error.status, headers=error.headers)


def _problem_of(error: CosIdError) -> Problem:
    if isinstance(error, InvalidArgumentError):
        return Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", str(error))
    if isinstance(error, CounterMissingError):
        return _ResultError(_UNKNOWN_TAG)
    is_closed = isinstance(error, NotOpenError | ClosedError)
    return _ResultError(_NOT_INITIALIZED if is_closed else _NOT_READY)


def _compact(facts: object) -> bytes:
    return json.dumps(facts, separators=(",", ":")).encode()


class _Leaf:
    """The operations of Leaf's controllers."""

    def __init__(
        self, service: Service, *, public: bool, prefix: str, segment: bool, snowflake: str
    ) -> None:
        self._service, self._access = service, gate(service, public=public)
        self._segment, self._snowflake = segment, snowflake
        self._get = f"{prefix}/api/segment/get"

    async def segment_id(self, scope: Scope, _receive: Receive) -> HttpAnswer:
        """``/api/segment/get/{key}``: an id; with ``/{size}``: ``{first}:{size}``."""
        parts, service = parts_of(scope, self._get), self._service
        name = parts[0]
        wanted = TokenScope.IDS if len(parts) == 1 else TokenScope.SEGMENTS
        access = self._access(scope)
        service.check(access, wanted, name)
        if not name or len(parts) > 2:  # noqa: PLR2004 - a key and a size
            raise Problem(HTTPStatus.NOT_FOUND, "no-path")
        if not self._segment:
            raise _ResultError(_NOT_INITIALIZED)
        generator = await self._tag(name)
        if len(parts) == 1:
            service.quotas.charge(access, name)
            return HttpAnswer(b"%d" % await generator.next_id(), TEXT)
        size = whole({"size": parts[1]}, "size")
        if size > 1:
            check_many(scope, access)
        ids = await service.segment(name, size, access=access)
        if ids.step != 1:
            detail = "the counter's ids are not contiguous"
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", detail)
        return HttpAnswer(f"{ids[0]}:{len(ids)}".encode(), TEXT)

    async def _tag(self, name: str) -> IdGenerator:
        try:
            found = await self._service.generator(name)
        except Problem as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise _ResultError(_UNKNOWN_TAG) from None
            raise
        if not isinstance(found, IdGenerator) or isinstance(found, SnowflakeId | ShardedId):
            raise _ResultError(_UNKNOWN_TAG)
        return found

    async def snowflake_id(self, scope: Scope, _receive: Receive) -> HttpAnswer:
        """``/api/snowflake/get/{key}``: a Snowflake id; the key is only informative."""
        access = self._access(scope)
        self._service.check(access, TokenScope.IDS, self._snowflake)
        if not scope["path_params"]["key"]:
            raise Problem(HTTPStatus.NOT_FOUND, "no-path")
        found = self._sequencer()
        if found is None:
            raise _ResultError(_NOT_INITIALIZED)
        self._service.quotas.charge(access, self._snowflake)
        return HttpAnswer(b"%d" % await found.next_id(), TEXT)

    def _sequencer(self) -> IdGenerator | None:
        """Return the Snowflake mode's generator; a request never creates it."""
        try:
            found = self._service.provider[self._snowflake]
        except KeyError:
            return None
        return found if isinstance(found, IdGenerator) else None

    async def decode(self, scope: Scope, _receive: Receive) -> HttpAnswer:
        """``/decodeSnowflakeId?snowflakeId=``: the parts of an id; times are in UTC."""
        self._service.check(self._access(scope), TokenScope.READ)
        found = self._sequencer()
        layout: SnowflakeLayout = found.layout if isinstance(found, SnowflakeId) else LEAF
        try:
            parts = layout.parse(whole(query_of(scope), "snowflakeId"))
        except (Problem, InvalidIdError):
            return HttpAnswer(f'{{"errorMsg":"{_NOT_AN_ID}"}}'.encode())
        at = parts.timestamp.astimezone(UTC).isoformat(" ", "milliseconds").partition("+")[0]
        facts = {
            "timestamp": f"{parts.timestamp_ms}({at})",
            "workerId": str(parts.machine_id),
            "sequenceId": str(parts.sequence),
        }
        return HttpAnswer(_compact(facts))

    async def cache(self, scope: Scope, _receive: Receive) -> HttpAnswer:
        """``/cache``: the buffered ids of each tag, shown as Leaf's two buffers."""
        self._service.check(self._access(scope), TokenScope.READ)
        if not self._segment:
            raise _SegmentOffError
        return HttpAnswer(_page(_CACHE_COLUMNS, map(_buffers, self._statistics())), _HTML)

    async def db(self, scope: Scope, _receive: Receive) -> HttpAnswer:
        """``/db``: the counters of the store, each as the first id of the next segment."""
        self._service.check(self._access(scope), TokenScope.READ)
        if not self._segment:
            raise _SegmentOffError
        steps = {f"{each.namespace}.{each.name}": each.step for each in self._statistics()}
        rows = [
            (
                each.namespaced_name,
                each.last_max_id + 1,
                steps.get(each.namespaced_name, ""),
                _moment(each.last_fetch_time),
            )
            for each in await self._service.store.counters()
        ]
        return HttpAnswer(_page(_DB_COLUMNS, rows), _HTML)

    def _statistics(self) -> list[SegmentStatistics]:
        provider: Any = self._service.provider
        found = [provider[name].statistics() for name in provider]
        if (tags := getattr(provider, "leaf_tags", None)) is not None:
            found += [each.statistics() for each in tags.generators.values()]
        return [each for each in found if isinstance(each, SegmentStatistics)]


def _moment(seconds: int | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(" ")


def _buffers(seen: SegmentStatistics) -> Sequence[object]:
    """Return a row: the segment in use, then the ids buffered beyond it."""
    value, first_max = _above(seen.head_sequence), _above(seen.head_max_id)
    last_max = _above(seen.max_id)
    has_next = last_max > first_max
    further = (first_max, last_max, seen.step) if has_next else (0, 0, 0)
    is_there = seen.head_max_id is not None
    flags = (str(flag).lower() for flag in (is_there, has_next))
    return (seen.name, *flags, 0, value, first_max, seen.step, *further)


def _above(last: int | None) -> int:
    """Return the next id after one; 0 for None."""
    return 0 if last is None else last + 1


def _page(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    lines = [_row("th", columns), *(_row("td", row) for row in rows)]
    table = f"<table border=1>{''.join(lines)}</table>"
    head = '<!DOCTYPE html><html lang="en"><head><title>Leaf</title></head>'
    return f"{head}<body>{table}</body></html>".encode(errors="replace")


def _row(cell: str, values: Iterable[object]) -> str:
    cells = (f"<{cell}>{html.escape(str(value))}</{cell}>" for value in values)
    return f"<tr>{''.join(cells)}</tr>"
