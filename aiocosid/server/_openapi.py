"""The description of the API for tools: OpenAPI 3.1."""

from __future__ import annotations

import re
from inspect import cleandoc
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

from ._machines import Lease, Release, Renew, Repaired, Take
from ._problems import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel

    from ._routes import HttpOperation

__all__ = ("COUNT", "SHARD", "tree_of")

MODELS: Final = {model.__name__: model for model in (Take, Renew, Release, Lease, Repaired)}
TEXT: Final = {"type": "string"}
ATTRIBUTE: Final = re.compile(r"^(?P<name>\w+): (?P<text>.*(?:\n +.*)*)", re.MULTILINE)
"""An attribute in a docstring, with its continuation lines."""

COUNT: Final = {"type": "integer", "minimum": 1}
SHARD: Final = {
    "description": "The sharding id of all ids; the default is the generator's own.",
    "type": "integer",
    "minimum": 0,
    "default": None,
}
DECIMAL: Final = {"type": "string", "pattern": "^[0-9]+$"}


def _object(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _described(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's schema, with the fields' descriptions from its docstrings."""
    schema = model.model_json_schema()
    fields = schema["properties"]
    for each in reversed(model.mro()):
        text, _, attributes = (cleandoc(each.__doc__ or "")).partition("\n\nAttributes:\n")
        for found in ATTRIBUTE.finditer(dedent(attributes)):
            if found["name"] in fields:
                fields[found["name"]]["description"] = " ".join(found["text"].split())
        schema["description"] = text
    return schema


SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    **{name: _described(model) for name, model in MODELS.items()},
    "Ids": {
        "description": "Ids as text; numbers are present only if all of them are below 2^53, where "
        "JavaScript reads them exactly.",
        "type": "object",
        "properties": {
            "ids": {"type": "array", "items": TEXT},
            "numbers": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["ids"],
    },
    "Segment": {
        "description": "The ids from first to last, which belong to the caller alone; with a "
        "stride, every stride-th of them.",
        **_object(first=DECIMAL, last=DECIMAL, step=COUNT),
    },
    "Parts": {**_object(id=TEXT), "description": "The parts of an id, as far as it has them."},
    "Generators": _object(
        generators={
            "type": "array",
            "items": _object(
                name=TEXT, kind=TEXT, ids={"type": "string", "enum": ["number", "text"]}
            ),
        }
    ),
    "Statistics": {"type": "object"},
    "Done": {"type": "object"},
    "Problem": {
        "description": "Problem details, RFC 9457.",
        **_object(type=TEXT, title=TEXT, status={"type": "integer"}, kind=TEXT, detail=TEXT),
        "required": ["type", "title", "status", "kind"],
    },
}

PROBLEMS: Final = {
    400: "An argument is outside its range.",
    401: "A token is needed, or this one is wrong or has expired.",
    403: "The token does not allow this.",
    404: "There is no generator or counter of that name.",
    409: "A conflict: machine ids or ids are used up, a lease is lost, or the "
    "client's clock is wrong.",
    413: "The body is too long.",
    421: "Without a token, call the server by one of its names.",
    429: "The token has taken as many ids as it may; Retry-After says when to ask again.",
    501: "The server's store cannot do this.",
    503: "No id just now; Retry-After says when to ask again.",
}


def _content(kind: str, name: str) -> dict[str, Any]:
    return {kind: {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _operation(described: HttpOperation) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": described.summary,
        "responses": {
            "200": {
                "description": described.summary,
                "content": _content("application/json", described.answer),
            },
            **{
                str(status): {"description": text, "content": _content(CONTENT_TYPE, "Problem")}
                for status, text in PROBLEMS.items()
            },
        },
    }
    if described.asked is not None:
        content = _content("application/json", described.asked.__name__)
        operation["requestBody"] = {"required": True, "content": content}
    if described.query:
        operation["parameters"] = [
            {
                "name": name,
                "in": "query",
                "required": "default" not in schema,
                "schema": {key: each for key, each in schema.items() if each is not None},
            }
            for name, schema in described.query.items()
        ]
    return operation


def _parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0} if name == "machine_id" else TEXT,
        }
        for name in re.findall(r"{(\w+)}", path)
    ]


def tree_of(operations: Iterable[HttpOperation]) -> dict[str, Any]:
    """Return the OpenAPI document of operations; those without a summary are left out."""
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        if each.summary:
            path = each.path.replace(":path}", "}")
            operations_of_path = paths.setdefault(path, {"parameters": _parameters(path)})
            operations_of_path[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aiocosid",
            "version": "1",
            "description": "Unique, ordered, compact ids.  A path's version changes when a client "
            "would have to; fields may be added.",
        },
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
