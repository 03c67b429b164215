"""MySQL's statements as SQLite understands them.  Pure.

Enough for the shipped ones; what is not known here is refused, not guessed.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ("READS", "WRITES", "Statement", "UnknownStatementError", "read", "split")

Kind: TypeAlias = Literal[
    "begin",
    "commit",
    "create",
    "execute",
    "insert",
    "nothing",
    "prepare",
    "select",
    "set",
    "update",
]

READS: Final = frozenset[Kind]({"select"})
WRITES: Final = frozenset[Kind]({"create", "insert", "update"})

REWRITTEN: Final = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"/\*M! .*?\*/", ""),  # MariaDB's
        (r"/\*!\d+ (.*?)\*/", r"\1"),  # MySQL's
        (r"%\((\w+)\)s", r":\1"),
        (r"(@@?\w+)", r"variable('\1')"),
        (r"\bIF\(", "iif("),
        (r"\bGREATEST\(", "max("),
        (r"\bLEAST\(", "min("),
        (r"\bCHAR_LENGTH\(", "length("),
        (r"\bLEFT\(", "left_of("),
        (r"\bCONVERT\(", "("),
        (r" USING utf8mb4\b| COLLATE utf8mb4_bin\b", ""),
        (r"\bAS BINARY\)", "AS BLOB)"),
        (r"\bAS SIGNED\)", "AS INTEGER)"),
        (r"\bDIV\b", "/"),
        (r"\bMICROSECOND\b", "'MICROSECOND'"),
        (r"\bFROM DUAL\b| FOR UPDATE$| LOCK IN SHARE MODE$", ""),
    )
)
UNHEEDED: Final = re.compile(r" COMMENT '[^']*'|, KEY \w+ \([^)]*\)|\) ENGINE = InnoDB\b.*")
PLAIN: Final[dict[str, Kind]] = {
    "START TRANSACTION": "begin",
    "COMMIT": "commit",
    "COMMIT AND NO CHAIN NO RELEASE": "commit",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED": "nothing",
    "DO 0": "nothing",
}
FORMS: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    ("set", re.compile(r"SET (.+)")),
    ("prepare", re.compile(r"PREPARE \w+ FROM @(\w+)")),
    ("execute", re.compile(r"EXECUTE \w+")),
    ("nothing", re.compile(r"DEALLOCATE PREPARE \w+")),
    ("create", re.compile(r"CREATE TABLE (.+)")),
    ("insert", re.compile(r"(INSERT INTO .+?)(?: ON DUPLICATE KEY UPDATE (.+))?")),
    ("update", re.compile(r"UPDATE (.+?) SET (.+?)(?: WHERE (.+))?")),
    ("select", re.compile(r"SELECT (.+?) INTO (@\w+(?:, @\w+)*)( FROM .+)?")),
    ("select", re.compile(r"((?:SELECT|WITH) .+)")),
)
TABLE: Final = re.compile(r"(?:^|JOIN )(\w+)(?: AS (\w+))?")


class UnknownStatementError(AssertionError):
    """A statement that the simulation does not know."""


class Statement(NamedTuple):
    """One statement.

    Attributes:
        kind: what it does.
        sql: what SQLite runs for it.
        names: the variables that its columns are put into; of an update those of the tables, each
            with the place of its table.
        tables: of an update those that it joins; their row ids come first.
    """

    kind: Kind
    sql: str = ""
    names: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


@cache
def split(text: str) -> tuple[str, ...]:
    """Return the statements of a text, each in one line."""
    return tuple(" ".join(each.split()) for each in text.split(";") if each.strip())


@cache
def read(statement: str) -> Statement:
    """Return what is to be done for a statement.

    Raises:
        UnknownStatementError: it is none of those that are known.
    """
    if statement in PLAIN:
        return Statement(PLAIN[statement])
    for kind, form in FORMS:
        if (found := form.fullmatch(statement)) is not None:
            return _read(kind, *found.groups(default=""))
    raise UnknownStatementError(f"the simulated MySQL does not know: {statement}")


def _read(  # noqa: PLR0911 - one for each kind
    kind: Kind, first: str = "", second: str = "", third: str = ""
) -> Statement:
    match kind:
        case "set":
            assigned = [_halves(each) for each in _parts(first)]
            values = ", ".join(_rewritten(value) for _, value in assigned)
            names = (name if name[0] == "@" else f"@@{name}" for name, _ in assigned)
            return Statement(kind, f"SELECT {values}", tuple(names))
        case "insert" if second:
            updated = ", ".join(f"{name} = {value}" for name, value in _in_order(second))
            return Statement(kind, f"{_rewritten(first)} ON CONFLICT DO UPDATE SET {updated}")
        case "update":
            return _update(first, second, third or "1")
        case "select" if second:
            sql = f"SELECT {_rewritten(first)} {_rewritten(third)}"
            return Statement(kind, sql, tuple(second.split(", ")))
        case "create":
            return Statement(kind, f"CREATE TABLE {UNHEEDED.sub(_unheeded, first)}")
        case "prepare":
            return Statement(kind, names=(f"@{first}",))
        case _:
            return Statement(kind, _rewritten(first))


def _unheeded(found: re.Match[str]) -> str:
    return ")" if found[0].startswith(")") else ""


def _update(tables: str, assignments: str, condition: str) -> Statement:
    """Look first for the rows and for what comes into them: it may be more than one table."""
    found = {alias or table: table for table, alias in TABLE.findall(tables)}
    places, names, values = [*found], list[str](), list[str]()
    for name, value in _in_order(assignments):
        alias, _, column = name.rpartition(".")
        names.append(f"{places.index(alias) if alias else 0} {column}")
        values.append(value)
    looked = ", ".join([*(f"{alias}.rowid" for alias in places), *values])
    sql = f"SELECT {looked} FROM {_rewritten(tables)} WHERE {_rewritten(condition)}"  # noqa: S608 - of ours
    return Statement("update", sql, tuple(names), tuple(found.values()))


def _in_order(assignments: str) -> list[tuple[str, str]]:
    """Return columns and values; each sees what was assigned before it, as SQLite's do not."""
    done: list[tuple[str, str]] = []
    for name, value in map(_halves, _parts(assignments)):
        seen = _rewritten(value)
        for known, before in done:
            column = rf"(?<![\w.:'])(?:\w+\.)?{known.rpartition('.')[2]}\b(?!')"
            seen = re.sub(column, f"({before})".replace("\\", r"\\"), seen)
        done.append((name, seen))
    return done


def _halves(assignment: str) -> tuple[str, str]:
    name, _, value = assignment.partition(" = ")
    return name, value


def _parts(listed: str) -> list[str]:
    """Part a list at its commas, but for those in parentheses or quotes."""
    parts, depth, quoted = [""], 0, False
    for each in listed:
        quoted ^= each == "'"
        depth += (each == "(") - (each == ")") if not quoted else 0
        if each == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += each
    return [part.strip() for part in parts]


def _rewritten(sql: str) -> str:
    for pattern, instead in REWRITTEN:
        sql = pattern.sub(instead, sql)
    return sql
