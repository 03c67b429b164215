"""The page that describes the API for people, rendered from its OpenAPI document.  No I/O."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from ._page import head, table_grid, table_section
from ._view import Shown, ViewTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._view import Row

__all__ = ("api_page",)

Tree = dict[str, Any]

FIELDS: Final = ("Field", "Type", "Default", "Meaning")
PARAMETERS: Final = ("Parameter", "In the", "Type", "Default")
ERRORS: Final = ("Status", "Meaning")
NEEDED: Final = Shown("required")

PAGE: Final = """<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>{title}</h1>
<nav aria-label="Pages"><a href="dashboard">Dashboard</a><a href="v1/openapi.json">The same for
tools: OpenAPI</a></nav>
</header>
<main id="main" tabindex="-1">
<section aria-labelledby="api"><h2 id="api">The API, version {version}</h2>
<p>{description}</p>
<p>If the server needs a token, send it as <code>Authorization: Bearer aiocosid_...</code> with
each request.</p>
<ul>{contents}</ul></section>
{operations}
{errors}
{schemas}
</main>
"""

OPERATION: Final = """<section id="{key}" aria-labelledby="{key}-title">
<h2 id="{key}-title"><code>{name}</code></h2>
<p>{summary}</p>
{parameters}
<p>{links}</p>
</section>
"""


def api_page(document: Tree, *, version: str) -> str:
    """Return the whole page.

    Args:
        document: the OpenAPI document.
        version: the version of the static files.
    """
    info: Mapping[str, str] = document["info"]
    operations = {
        f"{method.upper()} {path}": (found["parameters"], operation)
        for path, found in document["paths"].items()
        for method, operation in found.items()
        if method != "parameters"
    }
    contents = (_entry(name, each["summary"]) for name, (_, each) in operations.items())
    schemas: Mapping[str, Tree] = document["components"]["schemas"]
    body = PAGE.format(
        title=escape(info["title"]),
        version=escape(info["version"]),
        description=escape(info["description"]),
        contents="".join(contents),
        operations="".join(_operation(name, *each) for name, each in operations.items()),
        errors=table_section(_errors(each for _, each in operations.values())),
        schemas="".join(table_section(_schema(name, each)) for name, each in schemas.items()),
    )
    return head("aiocosid: API", version) + body


def _entry(name: str, summary: str) -> str:
    return f'<li><a href="#{_key(name)}"><code>{escape(name)}</code></a> {escape(summary)}</li>'


def _key(name: str) -> str:
    """Return the anchor for a name."""
    return "-".join("".join(c if c.isalnum() else " " for c in name).lower().split())


def _operation(name: str, shared: list[Tree], operation: Tree) -> str:
    key, parameters = _key(name), [*shared, *operation.get("parameters", ())]
    table = ViewTable(
        key=key,
        title=f"Parameters of {name}",
        columns=PARAMETERS,
        rows=[
            (
                Shown(each["name"]),
                Shown(each["in"]),
                Shown(_type(each["schema"])),
                _default(each["schema"], is_needed=each["required"]),
            )
            for each in parameters
        ],
    )
    bodies = {"Answer": operation["responses"]["200"]}
    if "requestBody" in operation:
        bodies = {"Body": operation["requestBody"], **bodies}
    return OPERATION.format(
        key=key,
        name=escape(name),
        summary=escape(operation["summary"]),
        parameters=table_grid(table) if parameters else "",
        links=". ".join(f"{label}: {_link(each)}" for label, each in bodies.items()),
    )


def _link(body: Tree) -> str:
    ((kind, content),) = body["content"].items()
    name: str = content["schema"]["$ref"].rpartition("/")[2]
    return f'<a href="#{_key(name)}">{escape(name)}</a>, <code>{escape(kind)}</code>'


def _errors(operations: Iterable[Tree]) -> ViewTable:
    """Return the errors of all operations; each error has one meaning."""
    found = {
        status: answer["description"]
        for each in operations
        for status, answer in each["responses"].items()
        if status != "200"
    }
    return ViewTable(
        key="errors",
        title="Errors",
        columns=ERRORS,
        rows=[(Shown(status), Shown(text)) for status, text in sorted(found.items())],
        remark="Each is answered by a Problem.",
    )


def _schema(name: str, schema: Tree) -> ViewTable:
    properties: Mapping[str, Tree] = schema.get("properties", {})
    needed = schema.get("required", ())
    return ViewTable(
        key=_key(name),
        title=name,
        columns=FIELDS,
        rows=[_field(key, each, is_needed=key in needed) for key, each in properties.items()],
        remark=schema.get("description", ""),
        note="" if properties else "An object; its fields differ.",
    )


def _field(name: str, schema: Tree, *, is_needed: bool) -> Row:
    return (
        Shown(name),
        Shown(_type(schema)),
        _default(schema, is_needed=is_needed),
        Shown(schema.get("description", "")),
    )


def _default(schema: Tree, *, is_needed: bool) -> Shown:
    if is_needed:
        return NEEDED
    return Shown(f"{schema['default']}" if schema.get("default") is not None else "-")


def _type(schema: Tree) -> str:
    """Return the type of a value in words."""
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    kind: str = schema["type"]
    if kind == "array":
        return f"array of {_type(schema['items'])}"
    if kind == "object" and "properties" in schema:
        parts = (f"{name}: {_type(each)}" for name, each in schema["properties"].items())
        return f"object ({', '.join(parts)})"
    if "pattern" in schema:
        return f"{kind} {schema['pattern']}"
    unit = " characters" if kind == "string" else ""
    limits = {
        "from": schema.get("minimum", schema.get("minLength")),
        "above": schema.get("exclusiveMinimum"),
        "up to": schema.get("maximum", schema.get("maxLength")),
    }
    said = " ".join(f"{word} {limit:,}" for word, limit in limits.items() if limit is not None)
    return f"{kind}, {said}{unit}" if said else kind
