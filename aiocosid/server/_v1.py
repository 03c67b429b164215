"""The library's own API, version 1."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..abc import TextIdGenerator
from ..abc.machines import region_code_of
from ..errors import ClockSkewError
from ..machine import operations as ops
from ..machine.distributor import guard_ms_of, nonce, twin
from . import _machines
from ._http import HttpAnswer, query_of, whole
from ._machines import Lease, Release, Renew, Repaired, Take
from ._openapi import COUNT, SHARD, tree_of
from ._parse import parse
from ._problems import Problem
from ._routes import HttpOperation, as_json
from ._tokens import TokenScope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from pydantic import BaseModel

    from ._machines import Holder
    from ._routes import HttpCall

__all__ = ("OPERATIONS", "TREE")

T = TypeVar("T")

SAFE: Final = 2**53
"""JavaScript's numbers are exact below this value."""


# Ids.


async def _ids(call: HttpCall) -> HttpAnswer:
    """Take exactly the requested number of ids."""
    service, name = call.service, call.path["name"]
    if not call.scope["query_string"]:  # a shortcut for nearly all requests
        return HttpAnswer(_ids_text(await service.next_ids(name, 1, access=call.access)))
    query = query_of(call.scope)
    count = whole(query, "count", 1)
    shard = whole(query, "shard") if "shard" in query else None

    async def take() -> bytes:
        return _ids_text(await service.next_ids(name, count, shard, access=call.access))

    return await service.room.answer(count, take)


def _ids_text(ids: Sequence[Any]) -> bytes:
    """Return ids as decimal texts, and as numbers if JavaScript reads all of them exactly."""
    if isinstance(ids[0], str):
        return json.dumps({"ids": ids}).encode()
    text = ",".join(map(str, ids))
    texts = text.replace(",", '","')
    if max(ids) < SAFE:
        return f'{{"ids":["{texts}"],"numbers":[{text}]}}'.encode()
    return f'{{"ids":["{texts}"]}}'.encode()


async def _segment(call: HttpCall) -> HttpAnswer:
    """Take the ids of a segment, for this caller alone."""
    step = whole(query_of(call.scope), "step")
    ids = await call.service.segment(call.path["name"], step, access=call.access)
    found: dict[str, object] = {"first": str(ids[0]), "last": str(ids[-1]), "step": len(ids)}
    return as_json(found if ids.step == 1 else {**found, "stride": ids.step})


# Machine ids.


async def _take(call: HttpCall, asked: Take) -> HttpAnswer:
    namespace = call.path["namespace"]
    operation = ops.TakeOperation(
        **_holder(asked),
        bits=asked.bits,
        region_code=region_code_of(asked.region, asked.region_bits),
        now_ms=asked.now_ms,
        latest_ms=asked.now_ms if asked.latest_ms is None else asked.latest_ms,
        token=nonce(),
    )
    took = await _timed(_machines.take(call.service, call.access, namespace, operation))
    if took.twin_ms:
        raise twin(namespace, asked.instance_id, took)
    lease = Lease(
        machine_id=took.machine_id,
        above_ms=took.floor_ms,
        lease=took.token,
        safe_guard=asked.safe_guard,
    )
    return _of_model(lease)


async def _renew(call: HttpCall, asked: Renew) -> HttpAnswer:
    operation = ops.RenewOperation(
        **_holder(asked),
        machine_id=whole(call.path, "machine_id"),
        now_ms=asked.now_ms,
        fence_ms=asked.fence_ms,
        token=asked.lease,
    )
    await _timed(_machines.renew(call.service, call.access, call.path["namespace"], operation))
    return as_json({})


async def _release(call: HttpCall, asked: Release) -> HttpAnswer:
    operation = ops.ReleaseOperation(
        **_holder(asked),
        machine_id=whole(call.path, "machine_id"),
        last_ms=asked.last_ms,
        token=asked.lease,
    )
    await _timed(_machines.release(call.service, call.access, call.path["namespace"], operation))
    return as_json({})


def _holder(asked: Holder) -> dict[str, Any]:
    return {
        "instance": asked.instance_id,
        "stable": asked.stable,
        "guard_ms": guard_ms_of(asked.safe_guard),
    }


async def _timed(work: Awaitable[T]) -> T:
    """Await a call that fails if the client's clock is too wrong."""
    try:
        return await work
    except ClockSkewError as error:
        detail = f"the client's clock is {error.ahead} s ahead: correct it"
        raise Problem(HTTPStatus.CONFLICT, "clock-ahead", detail) from None


async def _repair(call: HttpCall) -> HttpAnswer:
    """Repair machine ids that a wrong clock has made unusable."""
    found = await _machines.repair(call.service, call.access, call.path["namespace"])
    free, held = (
        [each.machine_id for each in found if bool(each.instance_id) == is_held]
        for is_held in (False, True)
    )
    return _of_model(Repaired(repaired=free, held=held))


def _of_model(model: BaseModel) -> HttpAnswer:
    return HttpAnswer(model.model_dump_json().encode())


# Generators.


async def _parse(call: HttpCall) -> HttpAnswer:
    return as_json(parse(call.service.known(call.path["name"]), call.path["id"]))


async def _generators(call: HttpCall) -> HttpAnswer:
    """List the names that the caller may use, and the kinds of their ids."""
    access, provider = call.access, call.service.provider
    found = [
        {
            "name": name,
            "kind": provider[name].statistics().kind,
            "ids": "text" if isinstance(provider[name], TextIdGenerator) else "number",
        }
        for name in provider
        if access.allows(TokenScope.READ, name) or access.allows(TokenScope.IDS, name)
    ]
    return as_json({"generators": found})


async def _all_statistics(call: HttpCall) -> HttpAnswer:
    """Show the statistics in the format of CosId's actuator."""
    provider = call.service.provider
    names = [each for each in provider if call.access.allows(TokenScope.READ, each)]
    return as_json({each: provider[each].statistics().as_tree() for each in names})


async def _statistics(call: HttpCall) -> HttpAnswer:
    return as_json(call.service.known(call.path["name"]).statistics().as_tree())


async def _openapi(_call: HttpCall) -> HttpAnswer:
    return HttpAnswer(DOCUMENT)


OPERATIONS: Final = (
    HttpOperation(
        *("POST", "/v1/ids/{name:path}", _ids, TokenScope.IDS),
        summary="Take exactly the requested number of ids.",
        answer="Ids",
        query={"count": {**COUNT, "default": 1}, "shard": SHARD},
    ),
    HttpOperation(
        *("POST", "/v1/segments/{name:path}", _segment, TokenScope.SEGMENTS),
        summary="Take a segment of the counter: one addition.",
        answer="Segment",
        query={"step": COUNT},
    ),
    HttpOperation(
        *("POST", "/v1/machines/{namespace:path}", _take, TokenScope.MACHINES),
        summary="Take a machine id.",
        answer="Lease",
        asked=Take,
    ),
    HttpOperation(
        *("PATCH", "/v1/machines/{namespace:path}/{machine_id}", _renew, TokenScope.MACHINES),
        summary="Renew a machine id.",
        answer="Done",
        asked=Renew,
    ),
    HttpOperation(
        *("DELETE", "/v1/machines/{namespace:path}/{machine_id}", _release, TokenScope.MACHINES),
        summary="Release a machine id.",
        answer="Done",
        asked=Release,
    ),
    HttpOperation(
        *("POST", "/v1/repairs/{namespace:path}", _repair, TokenScope.ADMIN),
        summary="Mend machine ids whose times are more than a day ahead.",
        answer="Repaired",
    ),
    HttpOperation(
        *("GET", "/v1/parse/{name:path}/{id}", _parse, TokenScope.READ),
        summary="Tell what an id of a generator says.",
        answer="Parts",
    ),
    HttpOperation(
        "GET", "/v1/generators", _generators, summary="List the generators.", answer="Generators"
    ),
    HttpOperation(
        *("GET", "/v1/statistics", _all_statistics),
        summary="Show all generators' statistics.",
        answer="Statistics",
    ),
    HttpOperation(
        *("GET", "/v1/statistics/{name:path}", _statistics, TokenScope.READ),
        summary="Show a generator's statistics.",
        answer="Statistics",
    ),
    HttpOperation("GET", "/v1/openapi.json", _openapi, is_public=True),
)
"""The operations of the API, the busiest first."""

TREE: Final = tree_of(OPERATIONS)
"""The OpenAPI document."""

DOCUMENT: Final = json.dumps(TREE).encode()
