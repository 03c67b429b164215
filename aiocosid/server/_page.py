"""The dashboard's HTML, made without I/O.

Every text from outside goes through `_escaped`, since users and peers choose names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Final

from ._curves import HEIGHT, WIDTH
from ._view import name_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._curves import Curve
    from ._overview import Overview
    from ._view import Shown, ViewTable

__all__ = ("ActionResult", "head", "page", "table_grid", "table_section", "token_page")


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action.

    Attributes:
        text: one sentence.
        values: values to show, by name.
        is_error: whether the action failed and changed nothing.
    """

    text: str
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    is_error: bool = False

    def as_tree(self) -> dict[str, object]:
        """Return the result, ready for JSON."""
        return {"text": self.text, "values": dict(self.values)}


def _escaped(text: str) -> str:
    return escape(text, quote=True)


FEW: Final = 10
"""How many rows of a table a phone shows at first; the style sheet repeats this number."""

NAMES: Final = {"Name", "Store", "Counter", "Namespace", "Holder", "Instance"}
"""Columns with names that users choose; only in these may words be broken."""

HEAD: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="dashboard/dashboard.svg?v={version}">
<link rel="stylesheet" href="dashboard/dashboard.css?v={version}">
{script}</head>
"""
SCRIPT: Final = """<script src="dashboard/dashboard.js?v={version}" defer></script>
"""

ENTRY_PAGE: Final = """<body data-page="token">
<header><h1>aiocosid</h1></header>
<main class="narrow">
<h2>This page needs a token</h2>
{answer}
<form method="post" action="dashboard" id="token-form">
<p><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" required
 aria-describedby="token-help"></p>
<p id="token-help" class="help">The token must allow <code>read</code>. It is kept until you
close this tab; the server sets no cookie.</p>
<p><button>Show the dashboard</button></p>
</form>
</main>
</body>
</html>
"""

PAGE: Final = """<body data-page="overview">
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>aiocosid</h1>
<nav aria-label="Sections">{links}<a href="#actions">Actions</a><a href="docs">API</a></nav>
<p class="live"><label><input type="checkbox" id="live" checked> Update every 2 s</label>
{forget}</p>
</header>
<main id="main" tabindex="-1">
<h2 class="hidden">Server</h2>
<dl class="facts" id="facts">{facts}</dl>
<div class="curves" id="curves">{curves}</div>
<p id="trouble" role="status"></p>
<form method="get" action="dashboard" id="search" role="search">
<label for="find">Search all tables</label>
<input id="find" name="find" type="search" value="{find}" autocomplete="off" spellcheck="false">
</form>
{answer}
{tables}
<section id="actions" aria-labelledby="actions-title">
<h2 id="actions-title">Actions</h2>
<div class="forms">{forms}</div>
</section>
</main>
<footer><p>aiocosid {release}</p></footer>
</body>
</html>
"""

ENTRY_FIELD: Final = """<p class="token"><label for="{key}-token">Token</label>
<input id="{key}-token" name="token" type="password" autocomplete="off" required></p>
"""
CONFIRM_BOX: Final = """<p><label class="box"><input type="checkbox" name="confirm" value="yes"
 required> {label}</label></p>
"""
FIELD: Final = """<p><label for="{key}-{name}">{label}</label>
<input id="{key}-{name}" name="{name}" autocomplete="off" spellcheck="false" required{more}></p>
"""


def head(title: str, version: str, script: str = "") -> str:
    """Return the HTML before a page's body.

    Args:
        title: the title of the page.
        version: the version of the static files.
        script: the element that loads the script; empty for none.
    """
    return HEAD.format(title=title, version=version, script=script.format(version=version))


def token_page(*, version: str, answer: ActionResult | None = None) -> str:
    """Return the page that asks for a token.

    Args:
        version: the version of the static files.
        answer: why the last token was refused.
    """
    return head("aiocosid: token", version, SCRIPT) + ENTRY_PAGE.format(answer=_answer(answer))


def page(
    overview: Overview,
    *,
    version: str,
    needs_token: bool,
    namespace: str,
    generators: Sequence[str],
    answer: ActionResult | None = None,
    find: str = "",
) -> str:
    """Return the whole page.

    Args:
        overview: the values.
        version: the version of the static files.
        needs_token: whether actions need a token.
        namespace: the default namespace in the forms.
        generators: the names of the generators, for the forms.
        answer: the result of the last action.
        find: the text of the search.
    """
    tables = overview.tables
    forget = '<button type="button" id="forget">Forget the token</button>' if needs_token else ""
    body = PAGE.format(
        links="".join(f'<a href="#{each.key}">{_escaped(each.title)}</a>' for each in tables),
        forget=forget,
        facts="".join(_fact(name, each) for name, each in overview.facts.items()),
        curves="".join(map(_curve, overview.curves)),
        answer=_answer(answer),
        find=_escaped(find),
        tables="".join(map(table_section, tables)),
        forms=_forms(namespace, generators, needs_token=needs_token),
        release=_escaped(overview.facts["Version"].text),
    )
    return head("aiocosid: dashboard", version, SCRIPT) + body


def _answer(answer: ActionResult | None) -> str:
    if answer is None:
        return '<div id="answer" role="status" tabindex="-1" hidden></div>'
    kind = "bad" if answer.is_error else "good"
    values = "".join(
        f"<div><dt>{_escaped(name)}</dt><dd>{_escaped(value)}</dd></div>"
        for name, value in answer.values.items()
    )
    values = values and f"<dl>{values}</dl>"
    return (
        f'<div id="answer" role="status" tabindex="-1" class="{kind}">'
        f"<p>{_escaped(answer.text)}</p>{values}</div>"
    )


def _fact(name: str, shown: Shown) -> str:
    return f"<div><dt>{_escaped(name)}</dt><dd>{_shown(shown)}</dd></div>"


def _shown(shown: Shown) -> str:
    """Return a value with its remark."""
    level = f' class="{shown.level}"' if shown.level else ""
    why = f" <small>{_escaped(shown.why)}</small>" if shown.why else ""
    return f"<span{level}>{_escaped(shown.text)}</span>{why}"


def _curve(curve: Curve) -> str:
    title = _escaped(curve.title)
    return (
        f'<figure data-curve="{curve.key}"><figcaption>{title}, 10 minutes: '
        f"<span>{_escaped(curve.text)}</span></figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="{curve.path}"/></svg></figure>'
    )


def table_section(table: ViewTable) -> str:
    """Return a table with its heading and remarks."""
    remark = f'<p class="help">{_escaped(table.remark)}</p>' if table.remark else ""
    few = " hidden" if len(table.rows) <= FEW else ""
    return f"""<section id="{table.key}" aria-labelledby="{table.key}-title">
<h2 id="{table.key}-title">{_escaped(table.title)}</h2>{remark}
<input type="checkbox" class="more" id="{table.key}-more"{few}><label class="more"
 for="{table.key}-more"{few}>Show all rows</label>
{table_grid(table)}
<p class="note" id="{table.key}-note">{_escaped(table.note)}</p>
</section>
"""


def table_grid(table: ViewTable) -> str:
    """Return a table without its heading."""
    # Explicit roles, because the style sheet may show rows as blocks, which would remove them.
    headings = "".join(
        f'<th scope="col" role="columnheader"{_numeric(each)}>{_escaped(each.lstrip("#"))}</th>'
        for each in table.columns
    )
    rows = "".join(_row(table.columns, row) for row in table.rows)
    hidden = "" if table.rows else " hidden"
    return f"""<table role="table" data-key="{table.key}"{hidden}>
<caption class="hidden">{_escaped(table.title)}</caption>
<thead role="rowgroup"><tr role="row">{headings}</tr></thead>
<tbody role="rowgroup">{rows}</tbody>
</table>"""


def _numeric(column: str) -> str:
    kind = "n" if column.startswith("#") else "w" if column in NAMES else ""
    return f' class="{kind}"' if kind else ""


def _row(columns: Iterable[str], row: Iterable[Shown]) -> str:
    cells = "".join(
        f'<td role="cell"{_numeric(column)} data-label="{_escaped(column.lstrip("#"))}">'
        f"{_shown(each)}</td>"
        for column, each in zip(columns, row, strict=True)
    )
    return f'<tr role="row">{cells}</tr>'


def _forms(namespace: str, generators: Sequence[str], *, needs_token: bool) -> str:
    options = "".join(
        f'<option value="{_escaped(each)}">{_escaped(name_text(each))}</option>'
        for each in generators
    )
    draining = CONFIRM_BOX.format(label="This process of the server")
    space = f' value="{_escaped(namespace)}"'
    number = ' inputmode="numeric" pattern="[0-9]+"'

    def form(key: str, title: str, words: str, fields: str, buttons: str) -> str:
        token = ENTRY_FIELD.format(key=key) if needs_token else ""
        return f"""<form method="post" action="dashboard" id="{key}" aria-labelledby="{key}-title">
<h3 id="{key}-title">{title}</h3>
<p class="help">{words}</p>
{fields}{token}<p>{buttons}</p>
</form>
"""

    def choice(key: str) -> str:
        return f"""<p><label for="{key}-generator">Generator</label>
<select id="{key}-generator" name="generator" required>{options}</select></p>
"""

    def text(key: str, name: str, label: str, more: str = "") -> str:
        return FIELD.format(key=key, name=name, label=label, more=more)

    def button(action: str, label: str) -> str:
        return f'<button name="action" value="{action}">{label}</button>'

    return "".join(
        (
            form(
                "parse",
                "Parse an id",
                "Shows the time, machine id and sequence of an id. Changes nothing.",
                choice("parse") + text("parse", "id", "Id"),
                button("parse", "Parse it"),
            ),
            form(
                "try",
                "Try an id",
                "Takes one id, as a client would. No other client gets this id.",
                choice("try") + CONFIRM_BOX.format(label="Use one id up"),
                button("try", "Take one id"),
            ),
            form(
                "drain",
                "Drain",
                "A draining process reports that it is not ready, so that load balancers send no "
                "more requests. It still serves. Other processes on the same port do not change.",
                draining,
                button("drain", "Drain") + " " + button("undrain", "Serve again"),
            ),
            form(
                "floor",
                "Raise a floor",
                "Every further segment of the counter will be above the floor. A counter is never "
                "lowered. Generators keep their segments, so first close those that may hold ids "
                "at or below the floor.",
                text("floor", "namespace", "Namespace", space)
                + text("floor", "name", "Name")
                + text("floor", "above", "Above", number)
                + '<p><label class="box"><input type="checkbox" name="create" value="yes"> '
                "Create the counter if it is missing</label></p>"
                + text("floor", "confirm", "Confirm: type namespace.name"),
                button("floor", "Raise the floor"),
            ),
            form(
                "evict",
                "Take a machine id from a dead holder",
                "For a stable holder that will not come back; other machine ids expire by "
                "themselves. The holder must have ended: otherwise the next holder may issue the "
                "same ids.",
                text("evict", "namespace", "Namespace", space)
                + text("evict", "machine_id", "Machine id", number)
                + text("evict", "confirm", "Confirm: type the holder's name"),
                button("evict", "Take the machine id"),
            ),
        )
    )
