"""What no generator can be: a line or two of settings, the key that is told, and the reason."""

from __future__ import annotations

import tomllib
from typing import Final

import pytest

from aiocosid import configure
from aiocosid.errors import InvalidSettingsError

DAILY: Final = 'kind = "grouped"\ngroup_by = "day"\n'
SEGMENTS: Final = f'{DAILY}zone = "UTC"\ngroup_kind = "segment"\n'
BY_KEY: Final = 'kind = "grouped"\ngroup_by = "key"\n'
REDIS: Final = 'store = "redis://localhost"\n'
SHARDED: Final = f'kind = "sharded"\nepoch = 1_546_300_800\n{REDIS}'
INT32: Final = 'kind = "int32"\ninner.kind = '

REFUSED: Final = (
    # Options of one kind that do not go together, or that do nothing.
    ('kind = "chain"\nsafe_distance = 9\nmax_distance = 3', "safe_distance", "from 1 to 3"),
    ('kind = "chain"\nfetch_timeout = 9', "fetch_timeout", "at most 5 (wait_timeout)"),
    ('kind = "chain"\nlimit = "int32"\nmax_id = 4294967296', "max_id", "above the limit"),
    ('kind = "chain"\noffset = 50\nmax_id = 50', "offset", "below max_id, 50"),
    ('kind = "chain"\noffset = 3_000_000_000\nlimit = "int32"', "offset", "2147483647"),
    ('kind = "chain"\nstore = "mian"', "store", "is not a name in [stores], which has none"),
    ('kind = "segment"\nsafe_distance = 3', "safe_distance", "is not a key here"),
    ('kind = "chain"\nstep = true', "step", "must be a valid integer"),
    ('kind = "chain"\nttl = inf', "ttl", "must be a finite number"),
    ('kind = "chain"\nnamespace = ""', "namespace", "at least 1 character"),
    ("kind = 3", "kind", "must be one of"),
    ('kind = "leaf_segment"\nprefetch_at = 1', "prefetch_at", ""),
    ('kind = "leaf_segment"\nsafe_distance = 2', "safe_distance", ""),
    (f"{SEGMENTS}safe_distance = 2", "safe_distance", "group_kind = 'chain'"),
    (f"{SEGMENTS}max_distance = 9", "max_distance", "group_kind = 'chain'"),
    (f"{SEGMENTS}max_ids_ahead = 9", "max_ids_ahead", "group_kind = 'chain'"),
    (f"{SEGMENTS}quiet_period = 1", "quiet_period", "group_kind = 'chain'"),
    # Strict order.
    (f'kind = "segment"\nstrict = true\n{REDIS}', "", "it replicates asynchronously"),
    (f"{SEGMENTS}strict = true\n{REDIS}", "", "cannot keep strict order"),
    (f'{DAILY}zone = "UTC"\nstrict = true', "strict", "False for chains"),
    ('kind = "chain"\nstrict = true', "strict", ""),
    # Groups.
    (DAILY, "zone", "is required with group_by = 'day'"),
    (BY_KEY, "key", "is required with group_by = 'key'"),
    (f'{BY_KEY}key = "none.such:key"', "key", "ModuleNotFoundError: No module named 'none'"),
    (f'{BY_KEY}key = "json:no"', "key", "AttributeError: module 'json' has no attribute 'no'"),
    (f'{BY_KEY}key = ":no"', "key", "as 'package.module:name': ValueError"),
    (f'{BY_KEY}key = "sys:path"', "key", "must be callable"),
    (f'{BY_KEY}key = "json:dumps"\nzone = "UTC"', "zone", "requires group_by"),
    (f'{BY_KEY}key = "json:dumps"\npattern = "yyyy"', "pattern", "requires group_by"),
    (f'{BY_KEY}key = "json:dumps"\nmax_groups = 0', "max_groups", "greater than or equal to 1"),
    # Converters and texts.
    ('kind = "chain"\nconverter = "friendly"', "converter", "shows the time of a Snowflake"),
    ('kind = "chain"\nconverter = "sharded"', "converter", "shard of kind = 'sharded'"),
    ('kind = "chain"\nconverter = "opaque"', "converter.key", "is required for opaque ids"),
    ('kind = "chain"\nconverter.type = ["x"]', "converter.type", "must be 'to-string'"),
    (
        'kind = "chain"\nconverter = {type = "to-string", pad_start = true}',
        "converter.char_size",
        "is required by pad_start",
    ),
    (
        'kind = "chain"\nconverter = {type = "ulid", min_length = 3}',
        "converter.min_length",
        "requires type",
    ),
    ('kind = "cosid_text"\nconverter = "radix62"', "converter", "text writes the ids"),
    ('kind = "cosid_text"\ntext = "friendly"', "zone", "is required for friendly text"),
    ('kind = "cosid_text"\nzone = "UTC"', "zone", "requires text = 'friendly'"),
    # Layouts, and what goes with Snowflakes.
    ('kind = "snowflake"\nlayout = "uid-generator"', "layout", "ended"),
    ('kind = "snowflake"\nlayout.epoch = 1', "layout.timestamp_bits", "is required; give all of"),
    (
        'kind = "snowflake"\nlayout = {name = "leaf", unit = "ms"}',
        "layout.unit",
        "cannot be combined with name",
    ),
    (
        'kind = "snowflake"\nconverter = {type = "radix62", char_size = 5}',
        "converter",
        "id must be",
    ),
    *(
        (f'kind = "snowflake"\nsequence_reset_threshold = {wrong}', "sequence_reset_threshold", end)
        for wrong in ('"None"', '"nine"', -2, "true", 1.5)
        for end in ("must be an integer of -1 or more, or 'none'",)
    ),
    (
        'kind = "snowflake"\nsequence_reset_threshold = 4096',
        "sequence_reset_threshold",
        "0 to 4095",
    ),
    ('kind = "cached_snowflake"\nlayout = "cosid-ms"', "layout", ""),
    ('kind = "cached_snowflake"\nmax_borrow = 400', "max_borrow", ""),
    ('kind = "cached_snowflake"\nrandom_start = 3', "random_start", ""),
    # Machine ids.
    ('kind = "snowflake"\n[machine]\nmachine_id = 3', "machine.machine_id", "source = 'manual'"),
    ('kind = "snowflake"\n[machine]\npod_name = "shop-1"', "machine.pod_name", ""),
    (
        'kind = "snowflake"\n[machine]\nsource = "manual"',
        "machine.machine_id",
        "is required by source",
    ),
    (
        'kind = "snowflake"\n[machine]\nlead = 900',
        "machine.lead",
        "of 60 s and at most 270 s (0.9 of the safe guard), not 900.0",
    ),
    (
        'kind = "snowflake"\n[machine]\nregion = 1',
        "machine.region",
        "1 requires region_bits above 0; give both or neither",
    ),
    ('kind = "snowflake"\n[machine]\nregion = 4\nregion_bits = 2', "machine.region", "from 0 to 3"),
    ('kind = "snowflake"\n[machine]\nregion = 1\nregion_bits = 10', "machine.region_bits", "below"),
    (
        'kind = "snowflake"\n[machine]\nsource = "stateful-set"\nregion = 1',
        "machine.region",
        "source = 'store'",
    ),
    *(
        (f'kind = "snowflake"\n[machine]\nsafe_guard = {wrong}', "machine.safe_guard", said)
        for wrong, said in ((0, "not 0"), ("-inf", "not -inf"), ("nan", "not nan"))
    ),
    *(
        (f'kind = "snowflake"\n[machine]\n{key} = inf', f"machine.{key}", "")
        for key in ("interval", "peer_safe_guard", "call_timeout")
    ),
    (
        'kind = "snowflake"\n[machine]\nsource = "stateful-set"\npod_name = "a-1"\nstable = true',
        "machine.stable",
        "",
    ),
    # Kinds without a store.
    *(
        (f'kind = "{kind}"\n{key} = {value}', key, "has no place here: ")
        for kind in ("uuid4", "uuid7", "counter")
        for key, value in {
            "store": '"memory://"',
            "limit": '"int32"',
            "wait_timeout": 3,
            "close_timeout": 3,
            "converter": '"radix62"',
        }.items()
        if (kind, key) != ("counter", "converter")
    ),
    # Kinds around another one.
    (f'{INT32}"chain"\nbits = 3', "bits", "is not a key here"),
    (f'{INT32}"chain"\nstep = 3', "step", "is not a key here"),
    (f'{INT32}"chain"\nname = "x"', "name", "has no place here: it goes into"),
    (f'{INT32}"chain"\nlimit = "int32"', "limit", "has no place here: it goes"),
    (f'{INT32}"chain"\ninner.setp = 3', "inner.setp", "did you mean step?"),
    (f'{INT32}"chain"\ninner.step = 0', "inner.step", "greater than or equal to 1"),
    (f'{INT32}"chain"\ninner.converter = "radix62"', "inner.converter", "no place"),
    (f'{INT32}"cosid_text"', "inner.kind", "must be one of 'segment', 'chain'"),
    (f'{INT32}"snowflake"\ninner.layout = "no"', "inner.layout", "must be one of"),
    (f'{INT32}"snowflake"', "inner", "the highest one that fits is 2147483647"),
    (f'{INT32}"cached_snowflake"\ninner.max_borrow = 400', "inner.max_borrow", "must be"),
    ('kind = "uncertainty"\ninner.kind = "chain"', "bits", "is missing"),
    ('kind = "uncertainty"\ninner.kind = "chain"\nbits = 63', "bits", "less than or equal to 62"),
    (
        'kind = "grouped"\ngroup_by = "year"\nzone = "UTC"\nmode = "segment"',
        "mode",
        "did you mean group_kind?",
    ),
    ('kind = "chain"\nmode = "segment"', "mode", "is not a key here; known are"),
    # Sharded and remote ids.
    ('kind = "sharded"\nstore = "postgresql://localhost/x"', "store", "Redis, SQLite or memory"),
    (
        'kind = "sharded"\nkey = "order<second>"\nstore = "sqlite:///x"',
        "key",
        "requires Redis or Valkey",
    ),
    (f'kind = "sharded"\nepoch = 4_000_000_000\n{REDIS}', "epoch", ""),
    (f"{SHARDED}sequence_bits = 30", "", "bits"),
    (f'{SHARDED}limit = "javascript"', "limit", ""),
    (f'{SHARDED}lane_store = "sqlite:///x"', "lane_store", "requires on_unavailable"),
    ('kind = "remote"', "", "it has no generators"),
    (
        'kind = "remote"\nstore = "aiocosid+unix:///a"\nmax_age = 1.0\nendurance = 2.0',
        "endurance",
        "at most 1 (max_age)",
    ),
)


@pytest.mark.parametrize(("text", "key", "reason"), REFUSED)
def test_it_is_refused(text: str, key: str, reason: str) -> None:
    """Once, at the key that is wrong."""
    head = "" if "store = " in text or "counter" in text or "uuid" in text else 'store = "memory:"'
    with pytest.raises(InvalidSettingsError) as caught:
        configure(tomllib.loads(f"{head}\n[generators.x]\n{text}\n"))
    [problem] = map(str, caught.value.problems)
    place = key if key.startswith("machine.") else f"generators.x.{key}".rstrip(".")
    assert problem.startswith(f"{place}: "), problem
    assert reason in problem
