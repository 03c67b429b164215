"""One function a parser: it takes any text, and lets no error out but what is documented.

Each is run by hypothesis (`test_parsers`) and by Atheris (`python -m tests.fuzz`).
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import unquote

from aiocosid import converter
from aiocosid.abc import MAX_ID, IdConverter, InstanceId
from aiocosid.abc.dates import DatePattern, resolve_zone
from aiocosid.cli._parts import OwnLayout, parsed
from aiocosid.converter import DatePrefixIdConverter, OpaqueIdConverter
from aiocosid.errors import (
    CorruptMachineStateError,
    InvalidArgumentError,
    InvalidIdError,
    InvalidSettingsError,
    MachineBitsMismatchError,
)
from aiocosid.machine._held_id import HeldId, MachineState
from aiocosid.machine._manual import ordinal_of
from aiocosid.provider import IdProvider, store_from_url
from aiocosid.provider.settings import check_settings
from aiocosid.provider.settings._values import shown_url
from aiocosid.server import App
from aiocosid.server.dialects import cosid, leaf, tinyid
from aiocosid.sharding import sharding_algorithm
from aiocosid.sharding._keys import DateTextReader
from aiocosid.snowflake import (
    COSID_MS,
    COSID_S,
    LAYOUTS,
    RADIX36,
    RADIX62,
    CosIdFriendlyText,
    FriendlyText,
)
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.redis._backend import _counters, namespace_of
from aiocosid.stores.redis._link import text_of
from tests.unit.server._wire import Wire, command

__all__ = ("SECRET", "TARGETS", "Target")

SECRET: Final = "hunter2horse"  # noqa: S105 - to be looked for
AT: Final = datetime(2026, 11, 21, 13, 14, 15, 678000)  # noqa: DTZ001 - a local time


@dataclass(frozen=True, slots=True)
class Target:
    """A parser under test.

    Attributes:
        run: takes any text; raises if the parser breaks its word.
        seeds: texts that it takes, or nearly.
    """

    run: Callable[[str], None]
    seeds: tuple[str, ...]


def lines(text: str, count: int) -> list[str]:
    """As many lines as a target needs; the last one has the rest."""
    found = text.split("\n", count - 1)
    return found + [""] * (count - len(found))


def raw(text: str) -> bytes:
    """The bytes that a text was made of; half a surrogate pair stays what it is."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")


# URLs


def may_hold(url: str) -> bool:
    """Whether the secret stands where a password may, escaped or not, and nowhere else."""
    scheme, _, rest = url.partition("://")
    login, _, others = rest.rpartition("@")
    is_driver_text = url.startswith(f"host=db password={SECRET} ")
    return is_driver_text or (SECRET in login and SECRET not in scheme + others)


def urls(text: str) -> None:
    """A store or InvalidArgumentError, and no password in what either says."""
    try:
        said = repr(store_from_url(text))
    except InvalidArgumentError as error:
        said = f"{error} {error!r} {error.value!r} {error.__cause__!r}"
    said += shown_url(text)
    assert not (may_hold(text) and SECRET in said), said


# Texts of ids


@cache
def converters() -> tuple[IdConverter, ...]:
    """All kinds, and some put together."""
    number = converter.ToStringIdConverter()
    radix = converter.Radix62IdConverter(pad_start=False)
    return (
        number,
        converter.ToStringIdConverter(pad_start=True, char_size=8),
        converter.CrockfordIdConverter(),
        converter.CrockfordIdConverter(check=False, char_size=4),
        radix,
        converter.Radix62IdConverter(char_size=3),
        converter.Radix36IdConverter(),
        converter.PrefixIdConverter("a-", radix),
        converter.SuffixIdConverter("-z", number),
        converter.GroupedPrefixIdConverter(number),
        DatePrefixIdConverter("yyMMdd", number, zone="UTC"),
        DatePrefixIdConverter("yyyy-M-d", number, zone="UTC"),
        converter.SnowflakeFriendlyIdConverter(FriendlyText(COSID_MS, zone="UTC")),
        converter.compose(
            radix, prefix="A", suffix="Z", group_prefix=converter.GroupPrefix(delimiter="_")
        ),
        OpaqueIdConverter(bytes(16)),
        converter.CrockfordIdConverter(check=False, lower_case=True),
        converter.UlidConverter(),
        converter.UlidConverter(COSID_MS),
        converter.UuidConverter(),
        converter.TypeIdConverter("order"),
        converter.SqidsConverter(),
        converter.SqidsConverter("abcdef", 4, ("face",)),
    )


def texts(text: str) -> None:
    """An id that is written and read again as the same, or InvalidIdError."""
    for each in converters():
        with suppress(InvalidIdError):
            number = each.as_int(text)
            assert -MAX_ID - 1 <= number <= MAX_ID, (each, number)
            assert each.as_int(each.as_str(number)) == number, (each, number)


def friendly(text: str) -> None:
    """The same for friendly texts and CosIdGenerator's, in zones whose clocks are set."""
    for zone in ("UTC", "Europe/Berlin", "+14:00"):
        for layout in (COSID_MS, COSID_S):
            written = FriendlyText(layout, zone=zone)
            for fold in (None, 0, 1):
                with suppress(InvalidIdError):
                    number = written.as_id(text, fold=fold)
                    assert 0 <= number <= MAX_ID
                    layout.parse(number)
        with suppress(InvalidIdError):
            CosIdFriendlyText(zone=zone).as_state(text)
    for radix in (RADIX62, RADIX36):
        with suppress(InvalidIdError):
            assert radix.as_text(radix.as_state(text)) == text


def layouts(text: str) -> None:
    """What ``aiocosid parse`` is given: an id, a layout, bits, unit, epoch and a zone."""
    given, name, bits, unit, epoch, zone = (each or None for each in lines(text, 6))
    with suppress(InvalidArgumentError):
        own = OwnLayout(bits=bits, unit=unit, epoch=epoch)
        for _ in parsed(given or "", name, zone, own).rows():
            pass
    with suppress(InvalidArgumentError):
        number = int(given or "") if (given or "").isdecimal() and len(given or "") < 99 else -1
        for layout in LAYOUTS.values():
            layout.parse(number)


# Dates and zones


def dates(text: str) -> None:
    """A pattern and a text of it."""
    pattern, written = lines(text, 2)
    with suppress(InvalidArgumentError):
        found = DatePattern(pattern)
        assert found.width in {None, len(found.format(AT))}
    with suppress(InvalidArgumentError):
        reader = DateTextReader(pattern)
        reader.read("text", reader.pattern.format(AT))
        reader.read("text", written)
    with suppress(InvalidArgumentError):
        dated = DatePrefixIdConverter(pattern, converters()[0], written[:3], zone="UTC")
        assert dated.as_int(dated.as_str(7)) == 7
        dated.as_int(written)


def zones(text: str) -> None:
    """A zone that a time can be told in, or InvalidArgumentError."""
    with suppress(InvalidArgumentError):
        assert abs(AT.replace(tzinfo=resolve_zone(text)).utcoffset() or timedelta()) < timedelta(
            days=1
        )


# Files


@cache
def folder() -> Path:
    """A folder of this process's own, in memory where there is such a place."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder in it
    return Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None, prefix="aiocosid-fuzz"))


def state_files(text: str) -> None:
    """A state, a mark and a width as they lie in files: read, or damaged, and then unchanged."""
    with suppress(InvalidArgumentError):
        assert MachineState.parse(str(MachineState.parse(text))) == MachineState.parse(text)
    with suppress(InvalidArgumentError):
        assert 0 <= ordinal_of(text) < 10**10
    kind, content = text[:1], raw(text[1:])
    held = HeldId(
        namespace="n",
        machine_id=3,
        instance_id=InstanceId("web-3", stable=True),
        directory=folder(),
    )
    paths = {
        "m": held._fence_path,
        "b": held._bits_path,
        "s": held._states.path("n", held._instance_id),
    }
    path = paths.get(kind, held._fence_path)
    path.write_bytes(content)
    try:
        held.take(10, 5, leavings=0)
    except (CorruptMachineStateError, MachineBitsMismatchError):
        assert path.read_bytes() == content
    finally:
        held.release(takings=0)
        for each in paths.values():
            each.unlink(missing_ok=True)


def settings(text: str) -> None:
    """A file of settings: a report or InvalidSettingsError, and no password in either."""
    path = folder() / "ids.toml"
    path.write_bytes(raw(text))
    with _environment({}):
        _checked(path, text)


def environment(text: str) -> None:
    """Variables, one a line."""
    pairs = [each.partition("=")[::2] for each in text.split("\n")]
    given = {f"AIOCOSID_{name}": value for name, value in pairs if "\0" not in name + value}
    shown = any(SECRET in name for name in given)  # a name is no secret
    with suppress(UnicodeEncodeError), _environment(given):
        _checked(None, "" if shown else text)


def _checked(source: Path | None, text: str) -> None:
    try:
        said = repr(check_settings(source))
    except InvalidSettingsError as error:
        said = f"{error} {error!r} {error.__cause__!r}"
    held = [each for each in text.split("\n") if SECRET in each]
    if held and all(may_hold(each) for each in held):
        assert SECRET not in said, said


@contextmanager
def _environment(given: dict[str, str]) -> Generator[None]:
    rest = {name: each for name, each in os.environ.items() if not name.startswith("AIOCOSID_")}
    with patch.dict(os.environ, rest | given, clear=True):
        yield


def sharding(text: str) -> None:
    """ShardingSphere's properties, one a line."""
    kind, *pairs = text.split("\n")
    parts = [each.partition("=") for each in pairs]
    properties: dict[str, object] = {name: value for name, _, value in parts}
    with suppress(InvalidArgumentError):
        made = sharding_algorithm(kind, properties, layout=COSID_MS)
        for key in (0, 7, AT, "2026-11-21 13:14:15"):
            with suppress(InvalidArgumentError):
                made.exact(key)


# What a server answers


class _Server:
    """A client of a server that holds one key with one value."""

    def __init__(self, key: bytes, value: bytes) -> None:
        self.key, self.value = key, value

    async def scan_iter(self, **_: Any) -> AsyncIterator[bytes]:
        yield self.key

    async def execute_command(self, *_: Any, **__: Any) -> list[bytes]:
        return [self.value]


def listing(text: str) -> None:
    """A key and a value that somebody left on a Redis: an integer within int64, or left out."""
    key, value = map(raw, lines(text, 2))
    found = asyncio.run(_counters(_Server(b"cosid:{" + key + b"}.adder", value)))
    for name, number in found.items():
        assert name.encode() == key
        assert str(number).encode() == value  # as INCRBY would read it
        assert -MAX_ID - 1 <= number <= MAX_ID
    assert namespace_of(text_of(b"cosid:{" + key + b"}:itc_idx")) is not None


# What is asked of a server

PATH: Final = re.compile(r"[^\x00-\x20\x7f-\U0010ffff#]*")
"""What an HTTP parser lets through."""


def dialects(text: str) -> None:
    """A request in any of the HTTP dialects: an answer of the documented kind, and no traceback."""
    line, body = lines(text, 2)
    method, _, target = line.partition(" ")
    path, _, query = target.partition("?")
    if not PATH.fullmatch(path) or not path.startswith("/"):
        return
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode("latin-1", "ignore"),
        "root_path": "",
        "headers": [(b"content-type", b"application/x-www-form-urlencoded")],
    }
    status, headers, answer = asyncio.run(_ask(scope, raw(body)))
    assert headers[b"cache-control"] == b"no-store"
    assert b"Traceback" not in answer
    assert method != "HEAD" or status != 200 or not answer
    assert int(headers[b"content-length"]) == len(answer) or method == "HEAD"
    said = (b'"code":"500"', b"LeafServerException", b"leaf.segment.enable")
    assert status < 500 or any(each in answer for each in said), (status, answer)


async def _ask(scope: dict[str, Any], body: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    store, sent = MemoryStore(), list[Any]()
    await store.initialize()
    app = App(
        lambda: IdProvider(store),
        create=True,
        dialects=[cosid.routes, partial(leaf.routes, snowflake="order"), tinyid.routes],
    )

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async with AsyncExitStack() as stack:
        await app.service.open(stack)
        await (await app.service.generator("order")).next_id()
        await app(scope, receive, send)
    start, *parts = sent
    return start["status"], dict(start["headers"]), b"".join(each["body"] for each in parts)


# Keys


def opaque(text: str) -> None:
    """A key as settings hold it: it makes a permutation, or is refused and not shown."""
    try:
        made = OpaqueIdConverter.from_text(text)
    except InvalidArgumentError as error:
        assert len(text) < 12 or text not in f"{error} {error.value!r}"  # noqa: PT017 - or none
        return
    assert len(text) < 12 or text not in repr(made)
    for number in (0, 1, MAX_ID, len(text)):
        assert made.as_int(made.as_str(number)) == number


# Commands of Redis


def resp(text: str) -> None:
    """What a client sends, in two parts, is answered, or ends the connection; no bug, no trace."""
    data = raw(text)

    async def talk() -> list[Any]:
        broken: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: broken.append(about))
        wire = Wire()
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            wire.feed(part)
            await wire.settle()
        wire.close()
        await wire.settle()
        assert not broken, broken
        return wire.replies()

    assert "ERR internal error" not in [each for each in asyncio.run(talk()) if each is not None]


def said(*words: str | int) -> str:
    """A command as a seed."""
    return command(*words).decode()


INTERVAL: Final = (
    "datetime-lower=2024-01-01 00:00:00\ndatetime-upper=2024-12-31 23:59:59\n"
    "logic-name-prefix=t_\nsharding-suffix-pattern=yyyyMM\ndatetime-interval-unit=MONTHS\n"
    "datetime-interval-amount=1"
)

TARGETS: Final = {
    "urls": Target(
        urls,
        (
            "memory://",
            "sqlite:///ids.db",
            f"redis://app:{SECRET}@h:6379/0?socket_timeout=1",
            f"rediss://:{SECRET}@[::1]:7/1?ssl_cert_reqs=none",
            f"redis+cluster://u:{SECRET}@a,b:2",
            f"redis+sentinel://:{SECRET}@a,b/ids/1?sentinel_password=x",
            f"unix://u:{SECRET}@/run/s.sock?db=1",
            f"postgresql://app:{SECRET}@db:5432/shop?sslmode=require",
            f"postgres://app:{SECRET}@a,b:1/shop",
            # Found: each of these showed the secret once.
            f"host=db password={SECRET} dbname=x",
            f"redis+sentinel://u:p@a/{SECRET}@b/ids",
            f"unix://u:p@/{SECRET}@/run/s.sock",
            f"memory://u:{SECRET}@h",
        ),
    ),
    "texts": Target(
        texts,
        (
            *("0", "9223372036854775807", "-5", "00000007", "000000000016JD", "AzL8n0Y58m7"),
            *("a-7", "7-z", "20260116-42", "261121-1", "2026-1-1-1", "A20_7Z", "1Y2P0IJ32E8E7"),
            "20211228202301948-0-0",
        ),
    ),
    "friendly": Target(
        friendly,
        (
            *("20211228202301948-0-0", "20211228202301-1023-4095", "20241027023000000-1-1"),
            *("20240331023000000-0001-0002", "00MyKT2KmEn8H0h", "99991231235959999-0-0"),
        ),
    ),
    "layouts": Target(
        layouts,
        (
            "123456789012345678\ncosid-ms",
            "123456789\n\n41/5/5/12\nms\n2020-01-01T00:00:00Z\nAsia/Shanghai",
            "00MyKT2KmEn8H0h\ncosid-radix62",
            "77\n\n31/10/22\n10s\n1577203200000",
            "20211228202301948-0-0\nleaf\n\n\n0\n+08:00",
        ),
    ),
    "dates": Target(
        dates,
        (
            *("yyyyMMdd\n20261121", "yyyy-MM-dd HH:mm:ss\n2026-11-21 13:14:15", "yyDDD\n26325"),
            *(
                "yy'w'MM\n26w11",
                "yyyy-M-d\n2026-1-2",
                "uuuuMMddHHmmssSSS\n1",
                "%Y%m\n1",
                *("yyyyÀ\n2026À", "yyyyMMyyyyMMdd\n20261121", "yyyy-yy\n2026-26"),  # found
                "yy''''\n",
            ),
        ),
    ),
    "zones": Target(
        zones,
        ("UTC", "+08:00", "-23:59", "Asia/Shanghai", "America", "../etc/passwd", "Etc/GMT+5", "/"),
    ),
    "state_files": Target(
        state_files,
        ("m3|1777000000000\n", "b10", "s3|1777000000000", "m", "b\n", "s-1|-1", "web-3", "m4|5\n"),
    ),
    "dialects": Target(
        dialects,
        (
            "POST /segments/distributor/ns/a?offset=7&step=10",
            "PATCH /segments/ns/a%2Fb?step=10",
            "POST /machines/ns?machineBit=3&instanceId=a:1&stable=false&safeGuardDuration=PT5M",
            "PATCH /machines/ns?instanceId=a&stable=true&safeGuardDuration=PT2562047788015H12M55S",
            "DELETE /machines/ns?instanceId=a:1&stable=false",
            *("GET /ids/order", "GET /ids/as-string", "GET /actuator/cosid/order", "HEAD /ids"),
            *("GET /api/segment/get/order", "GET /api/segment/get/order/50", "HEAD /cache"),
            *("GET /api/snowflake/get/x", "GET /cache", "GET /db"),
            "GET /decodeSnowflakeId?snowflakeId=1211109066105786744",
            "POST /tinyid/id/nextId\nbizType=order&token=x&batchSize=3",
            "GET /tinyid/id/nextSegmentIdSimple?bizType=order&token=x",
            "PUT /tinyid/id/nextSegmentId?bizType=order\ntoken=x&batchSize=%FF",
        ),
    ),
    "settings": Target(
        settings,
        (
            f'store = "redis://u:{SECRET}@h/0"\n[generators.order]\nkind = "chain"\nstep = 10\n',
            f'[stores]\na = "postgresql://u:{SECRET}@h/x"\n[generators]\nb = "snowflake"\n',
            (
                'store = "memory://"\n[generators.g]\nkind = "grouped"\nby = "day"\nzone = "UTC"\n'
                '[generators.g.converter]\ntype = "radix"\nprefix = "a"\n'
            ),
            (
                'store = "memory://"\n[machine]\nid = 3\n[generators.s]\nkind = "snowflake"\n'
                'layout = "cosid-ms"\n'
            ),
            'store = "memory://"\n[sharding.m]\ntype = "mod"\nmod = 4\nlogic-name-prefix = "t"\n',
            f'generators.o = {{kind = "chain", store = "redis://:{SECRET}@@h"}}\n',
            f"a = {'9' * 5000}",  # found, as the next ones
            f"a = {'[' * 3000}",
            f'store = "redis://:{SECRET}@h"\n\udcff',
        ),
    ),
    "environment": Target(
        environment,
        (
            f"STORE=redis://u:{SECRET}@h/0\nGENERATORS__ORDER__KIND=chain",
            'GENERATORS={"a": {"kind": "segment", "step": 5}}\nSTORE=memory://',
            "STROE=memory://\nSHARE=snowflake\nMACHINE__ID=7",
            f"STORES={'[' * 100_000}",  # found, as the next one
            "STORE=memory://\nGENERATORS__O\udcff__KIND=chain\nGENERATORS__P\udcfe__KND=chain",
        ),
    ),
    "sharding": Target(
        sharding,
        (
            "COSID_MOD\nmod=4\nlogic-name-prefix=t_",
            f"COSID_INTERVAL\n{INTERVAL}",
            f"COSID_INTERVAL\n{INTERVAL}\nzone-id=Asia/Shanghai\nts-unit=SECOND",
            f"COSID_INTERVAL_SNOWFLAKE\n{INTERVAL}\nzone-id=UTC",
            f"COSID_INTERVAL_TS_SECOND\n{INTERVAL}\nzone-id=UTC\nid-name=order",
        ),
    ),
    "listing": Target(listing, ("cosid.order\n1000", "a\n-1", "a.b\n 1_0 ", "x\n1e9", "\udcff\n1")),
    "resp": Target(
        resp,
        (
            said("INCRBY", "cosid:{shop.order}.adder", 1000) * 2 + said("GET", "a"),
            said("HELLO", 3, "AUTH", "a", "b", "SETNAME", "c") + said("CLIENT", "SETINFO", "a", 1),
            said("SET", "a", 5, "NX", "GET") + said("SETNX", "a", -1) + said("MGET", "a", "b"),
            said("EXISTS", "a") + said("INFO") + said("COMMAND", "DOCS") + said("QUIT"),
            "*2147483647\r\n$1\r\na\r\n",
            "*1\r\n$-1\r\n",
            "*0\r\n*-1\r\n%1\r\n",
        ),
    ),
    "opaque": Target(
        opaque, ("00112233445566778899aabbccddeeff", "AAAAAAAAAAAAAAAAAAAAAA==", "x" * 32)
    ),
}
"""By name, as the command line knows them."""
