"""What does a text cost beside ``str(id)``, for one id and for many?"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from aiocosid.abc import IdConverter
from aiocosid.converter import (
    CrockfordIdConverter,
    OpaqueIdConverter,
    Radix36IdConverter,
    Radix62IdConverter,
    ToStringIdConverter,
)

from ._harness import SHORT_ROUNDS, Answer, beside, ratio

N = 2000  # about a millisecond, which a busy neighbour seldom cuts in two
ONE, MANY = 12, 6  # the bars

BASE = 2**60
IDS = {
    "Snowflake": [BASE + (n // 40 << 22) + n % 40 for n in range(N)],  # 40 a millisecond
    "chain": list(range(BASE, BASE + N)),
    "scattered": random.Random(15).sample(range(BASE, 2 * BASE), N),  # noqa: S311 - a benchmark
}
CONVERTERS: dict[str, IdConverter] = {
    "Radix62, padded": Radix62IdConverter(),
    "Radix62": Radix62IdConverter(pad_start=False),
    "Radix36, padded": Radix36IdConverter(),
    "ToString": ToStringIdConverter(),
    "Crockford": CrockfordIdConverter(),
    "Opaque": OpaqueIdConverter(bytes(32)),
}


def one_by_one(convert: Callable[[int], str], ids: list[int]) -> Callable[[], Awaitable[None]]:
    """Convert each id by a call of its own."""

    async def work() -> None:
        for each in ids:
            convert(each)

    return work


def in_bulk(
    convert: Callable[[list[int]], list[str]], ids: list[int]
) -> Callable[[], Awaitable[None]]:
    """Convert all ids by one call."""

    async def work() -> None:
        convert(ids)

    return work


async def ask() -> Answer:
    """Convert Snowflake ids with each converter, and other ids with padded Radix62 besides."""
    cases = [(name, "Snowflake") for name in CONVERTERS]
    cases += [("Radix62, padded", kind) for kind in IDS if kind != "Snowflake"]
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for name, kind in cases:
        converter, ids = CONVERTERS[name], IDS[kind]
        assert list(map(converter.as_int, converter.convert_many(ids))) == ids
        floor, ours = await beside(
            one_by_one(str, ids), one_by_one(converter.as_str, ids), SHORT_ROUNDS
        )
        bulk_floor, bulk = await beside(
            in_bulk(lambda ids: list(map(str, ids)), ids),
            in_bulk(converter.convert_many, ids),
            SHORT_ROUNDS,
        )
        found[name, kind] = (ratio(ours, floor), ratio(bulk, bulk_floor))
    one, many = found["Radix62, padded", "Snowflake"]
    return Answer(
        "a converter's text against `str(id)`, ids of 61 bits",
        f"padded Radix62 at most {ONE} for one id, at most {MANY} in `convert_many`",
        one <= ONE and many <= MANY,
        f"Padded Radix62: {one:.1f} for one id, {many:.1f} in bulk.",
        ("converter", "ids", "one id, x `str(id)`", "`convert_many`, x `list(map(str, ids))`"),
        tuple((name, kind, f"{a:.1f}", f"{b:.1f}") for (name, kind), (a, b) in found.items()),
        raw={"ratios": {f"{name}, {kind}": pair for (name, kind), pair in found.items()}, "n": N},
    )
