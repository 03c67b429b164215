"""Judge histories of ids without trusting whoever wrote them: ``python check.py FOLDER``.

A history (``*.jsonl``) has a JSON value a line; an object begins a generator, arrays belong to it:
  {"counter", "generator", "process", "strict", "leased", "layout"}   ids of a counter are unique
  ["call", begin, end, wall, first, last, ...]  one call and its ids, as runs of consecutive ones
  ["lease", at, wall, resource, first, last]    from now on these numbers are this generator's
  ["return", at, wall, resource, first]         those from ``first`` on are not, any more
  ["fault", at, wall, kind, count]              something was broken
Times are monotonic nanoseconds of one machine, ``wall`` is unix time in milliseconds.  A layout is
null, and leases are of ids (resource 0); or [lowest bit of the machine id, its bits, lowest bit of
the time, epoch], and leases are of milliseconds of a machine id, which is the resource.
"""

import json
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Any

TABLES = """
CREATE TABLE call (counter, generator, strict, rises, begin, end, low, high);
CREATE TABLE run (counter, owner, leased, first, last, since, until);
CREATE TABLE lease (counter, resource, owner, first, last); CREATE INDEX of ON lease (owner, first);
"""
OVERLAP = """SELECT * FROM (SELECT *, max(last) OVER (PARTITION BY {1} ORDER BY first, last
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS taken FROM {0}) WHERE first <= taken"""
TOO_LOW = """SELECT * FROM (SELECT *, max(CASE WHEN ended THEN id END) OVER (PARTITION BY scope
    ORDER BY at, ended ROWS UNBOUNDED PRECEDING) AS reached FROM (
        SELECT {0} AS scope, begin AS at, 0 AS ended, low AS id FROM call WHERE {1} UNION ALL
        SELECT {0}, end, 1, high FROM call WHERE {1})) WHERE NOT ended AND id <= reached"""
RULES = {
    "unique: an id came twice": OVERLAP.format("run", "counter"),
    "order: the ids of a call do not rise": "SELECT * FROM call WHERE NOT rises",
    "order: a generator had reached a higher id before": TOO_LOW.format("generator", "TRUE"),
    "strict: any generator had reached a higher id before": TOO_LOW.format("counter", "strict"),
    "leases: two hold the same": OVERLAP.format("lease", "counter, resource"),
    "leases: an id is outside": """SELECT * FROM run WHERE leased AND until > coalesce((
        SELECT last FROM lease WHERE lease.owner = run.owner AND lease.first <= since
        ORDER BY lease.first DESC LIMIT 1), -1)""",
}


def read(paths: list[Path], database: sqlite3.Connection) -> Counter[str]:
    """Fill the tables, and count what there is."""
    seen: Counter[str] = Counter()
    about: dict[str, Any] = {}
    owners: dict[tuple[int, str, int], int] = {}  # numbers: of a generator and a resource
    held: dict[tuple[str, int, int], list[list[int]]] = {}  # counter, resource, owner: from, to
    for text in (text for path in paths for text in path.open() if text.endswith("\n")):
        line = json.loads(text)  # one without an end was being written when its process was killed
        about = line if isinstance(line, dict) else about
        kind = "generator" if line is about else line[0]
        seen[f"{kind}s"] += line[4] if kind == "fault" else 1
        number, counter = seen["generators"], about.get("counter", "")
        if kind == "call":
            _, begin, end, _, *ids = line
            assert begin <= end, text
            row = (number, about["strict"], ids == sorted(ids), begin, end, min(ids), max(ids))
            database.execute("INSERT INTO call VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (counter, *row))
            for first, last in zip(ids[::2], ids[1::2], strict=True):
                seen["ids"] += last - first + 1
                since, until, resource = first, last, 0
                if about["layout"]:
                    low, bits, shift, epoch = about["layout"]
                    since, until = (first >> shift) + epoch, (last >> shift) + epoch
                    resource = (first >> low) % (1 << bits)
                    assert resource == (last >> low) % (1 << bits), text
                owner = owners.setdefault((number, counter, resource), len(owners))
                run = counter, owner, about["leased"], first, last, since, until
                database.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)", run)
        elif kind in {"lease", "return"}:
            resource, first = line[3:5]
            owner = owners.setdefault((number, counter, resource), len(owners))
            mine = held.setdefault((counter, resource, owner), [])
            if kind == "return":
                mine[:] = [[low, min(high, first - 1)] for low, high in mine if low < first]
            elif mine and mine[-1][1] + 1 == first:
                mine[-1][1] = line[5]
            else:
                mine.append([first, line[5]])
    rows = ((*key, *each) for key, mine in held.items() for each in mine)
    database.executemany("INSERT INTO lease VALUES (?, ?, ?, ?, ?)", rows)
    return seen


if __name__ == "__main__":
    database = sqlite3.connect("")  # a file in the temporary folder, as large as it has to be
    database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {TABLES}")
    seen = read(sorted(Path(sys.argv[1]).rglob("*.jsonl")), database)
    print("; ".join(f"{count:,} {name}" for name, count in sorted(seen.items())))
    failed = not seen["ids"]
    for rule, query in RULES.items():
        many = "coalesce(sum(min(last, taken) - first + 1), 0)" if "taken" in query else "count(*)"
        (violations,) = database.execute(f"SELECT {many} FROM ({query})").fetchone()
        print(f"{violations:,} violations of {rule}")
        for example in database.execute(f"{query} LIMIT 3") if violations else ():
            print("   ", example)
        failed = failed or violations > 0
    sys.exit(failed)
