"""Settings: what is accepted, and what is refused with its place; everything at once."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from aiocosid.abc.stores import is_disposable
from aiocosid.abc.variables import KEYS, TABLES, Variables
from aiocosid.errors import InvalidSettingsError
from aiocosid.provider.settings import ChainSettings, Settings, check_settings, load_settings
from aiocosid.provider.settings._values import shown_url
from tests.script import run_python

Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own environment."""
    for name in [each for each in os.environ if each.startswith("AIOCOSID_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file ids.toml in the working directory."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> Path:
        path = Path("ids.toml")
        path.write_text(text, encoding="utf-8")
        return path

    return written


def refused(source: object) -> list[str]:
    """Return the problems of settings that are refused."""
    with pytest.raises(InvalidSettingsError) as caught:
        load_settings(source)  # type: ignore[arg-type]  # anything
    assert all(str(each) in str(caught.value) for each in caught.value.problems)
    return [str(each) for each in caught.value.problems]


def test_three_lines_are_enough(write: Write) -> None:
    """A store, a name and a kind; the rest has defaults."""
    path = write('store = "redis://localhost/0"\n[generators.order]\nkind = "chain"\n')
    settings = load_settings(path)
    order = settings.generators["order"]
    assert isinstance(order, ChainSettings)
    distance = order.model_dump()["safe_distance"]
    assert (settings.namespace, order.step, distance) == ("cosid", 100, 2)
    [seen] = check_settings(str(path)).generators
    assert (seen.kind, seen.store, seen.counter) == (
        "chain",
        "redis://localhost/0",
        "cosid.order",
    )


WRONG = """\
store = "redis://:s3cret@localhost/0?sockettimeout=3"
safe_distance = 3

[generators.order]
kind = "chain"
step = "10"
safe-distance = 3

[generators.bill]
kind = "chian"

[generators.nothing]
step = 3

[generators.event]
kind = "snowflake"
layout = "cosid_ms"

[generators.second]
kind = "snowflake"
layout = { timestamp_bits = 31, machine_bits = 10, sequence_bits = 22, unit = "s", \
epoch = 1577203200 }

[generators.token]
kind = "cosid_text"

[generators.small]
kind = "snowflake"
layout = "javascript-safe-ms"
limit = "int32"
converter = { type = "radix36", zone = "UTC", group_prefix = {} }

[generators.daily]
kind = "grouped"
group_by = "day"
zone = "Mars"

[sharding.half]
type = "mod"

[sharding.time]
type = "interval"
datetime-lower = 2021-01-01T00:00:00
datetime-upper = "2031-01-01 00:00:00"
logic-name-prefix = "t_"
sharding-suffix-pattern = "%Y%m"
datetime-interval-unit = "MONTHS"

"""


def test_everything_wrong_is_told_at_once(write: Write) -> None:
    """Keys, types and combinations, each with its place."""
    expected = {
        "store": "url cannot have the option 'sockettimeout'",
        "safe_distance": "is not a key here; known are close_timeout, create, generators",
        "generators.order.step": "must be a valid integer, not '10'",
        "generators.order.safe-distance": "did you mean safe_distance?",
        "generators.bill.kind": "must be one of 'segment', 'chain'",
        "generators.nothing.kind": "is required; give one of 'segment', 'chain'",
        "generators.event.layout": "must be one of 'cosid-ms'",
        "generators.second.layout.epoch": "give 1577203200000 if this is in seconds",
        "generators.small": "of 3 bits in namespace 'cosid', where generators.token takes",
        "generators.small.limit": "ends at 2147483647",
        "generators.small.converter.group_prefix": "",
        "generators.small.converter.zone": "",
        "generators.daily.zone": "not 'Mars'",
        "sharding.half.mod": "",
        "sharding.half.logic-name-prefix": "",
        "sharding.time.sharding-suffix-pattern": "Java's 'yyyyMM'",
    }
    told = [each.split(": ", 2) for each in refused(write(WRONG))]
    assert sorted(each[:2] for each in told) == sorted(["ids.toml", each] for each in expected)
    assert [each for each in told if expected[each[1]] not in each[2]] == []


def test_of_the_common_ground_too(write: Write) -> None:
    """Keys of [machine] that do not go with its source, once and not for each generator."""
    text = 'store = "memory://"\n[share]\nkind = "snowflake"\n[generators.b]\nkind = "snowflake"\n'
    [found] = refused(write(f"{text}[machine]\nmachine_id = 3\n"))
    assert found == "ids.toml: machine.machine_id: requires source = 'manual'"


def test_a_generator_without_a_store_or_twice(write: Write) -> None:
    [found] = refused(write("[generators.x]\nkind = 'chain'\n"))
    assert "generators.x: needs a store: write store = " in found
    twice = 'store = "memory://"\n[share]\nkind="chain"\n[generators.__share__]\nkind="chain"\n'
    [found] = refused(write(twice))
    assert "which [share] describes already" in found
    [found] = refused(write('stores = "redis://:s3cret@h/0"\n'))
    assert found == "ids.toml: stores: must be a table"


def test_machine_ids_that_nobody_asks_for(write: Write) -> None:
    """Their keys are looked at all the same."""
    head = 'store = "memory://"\n[generators.x]\n'
    daily = 'kind = "grouped"\ngroup_by = "day"\nzone = "UTC"\nsafe_distance = 2\n'
    load_settings(write(f"{head}{daily}offset = 5\nmax_id = 6\n"))
    text = f'{head}kind = "chain"\n[machine]\nmachine_id = 3\npod_name = "h"\n'
    assert refused(write(text)) == [
        "ids.toml: machine.machine_id: requires source = 'manual'",
        "ids.toml: machine.pod_name: requires source = 'stateful-set'",
    ]


def test_a_date_is_no_group(write: Write) -> None:
    """The date is that of the call's moment: with numbers of another period texts come twice."""
    head = 'store = "memory://"\n[generators.x]\nkind = "grouped"\ngroup_by = "day"\n'
    text = f'{head}zone = "+08:00"\n[generators.x.converter]\ndate_prefix = {{zone = "UTC"}}\n'
    [found] = refused(write(text))
    assert found.startswith("ids.toml: generators.x.converter.date_prefix: ")
    assert "group_prefix = {}" in found
    load_settings(write(f"{text}group_prefix = {{}}\n"))


def test_places_within_a_converter(write: Write) -> None:
    """A zone is the date's, and not the converter's own; each fault is told."""
    text = """\
store = "memory://"
[generators.a]
kind = "chain"
converter.type = "to-string"
converter.zone = "UTC"

[generators.a.converter.date_prefix]
pattern = "yyyyMMdd"
zone = "Nowhere/X"
[generators.b]
kind = "chain"
converter = {type = "friendly", date_prefix = {pattern = "YYYY", zone = "UTC"}}
[generators.c]
kind = "chain"
[generators.c.converter.date_prefix]
zone = "UTC"
delimiter = ""
pattern = "yyyy.M"
"""
    assert sorted(each.split(": ")[:2] for each in refused(write(text))) == [
        ["ids.toml", "generators.a.converter.date_prefix.zone"],
        ["ids.toml", "generators.a.converter.zone"],
        ["ids.toml", "generators.b.converter.date_prefix.pattern"],
        ["ids.toml", "generators.b.converter.type"],
        ["ids.toml", "generators.c.converter.date_prefix.delimiter"],
    ]


def test_random_bits_of_one_counter() -> None:
    """Of two widths, or beside none: 1 with two random bits may be 5."""

    def blurred(bits: int, name: str = "n") -> dict[str, Any]:
        return {"kind": "uncertainty", "bits": bits, "inner": {"kind": "chain", "name": name}}

    def source(**generators: Any) -> dict[str, Any]:
        return {"store": "memory://", "generators": generators}

    plain = {"kind": "segment", "name": "n"}
    for other in (blurred(3), plain):
        [found] = refused(source(a=blurred(2), b=other))
        assert found.startswith("generators.b")
        assert "generators.a adds 2, so that ids may be equal" in found
    load_settings(source(a=blurred(2), b=blurred(2), c=blurred(3, "m"), d={**plain, "name": "o"}))


def test_groups_without_a_delimiter() -> None:
    """Groups 1 and 12, ids 23 and 3: one text."""
    converter = {"type": "to-string", "group_prefix": {"delimiter": ""}}
    grouped = {"kind": "grouped", "group_by": "key", "key": "os:getcwd", "converter": converter}
    [found] = refused({"store": "memory://", "generators": {"x": grouped}})
    assert "ids of two groups may have the same text" in found


def test_names_that_are_no_texts() -> None:
    """In a mapping, where anything may be a key."""
    chain = {"kind": "chain", "step": "x"}
    source = {"store": "memory://", 3: 4, "generators": {1: {"kind": "chain"}, "a": chain}}
    assert refused(source) == [
        "generators.1: its name must be a string",
        "generators.a.step: must be a valid integer, not 'x'",
        "3: its name must be a string",
    ]


def test_files_that_are_none(write: Write, tmp_path: Path) -> None:
    """Missing, no TOML, no UTF-8: one problem with the file's name."""
    [found] = refused("nowhere.toml")
    assert found.startswith("nowhere.toml: cannot be read: No such file")
    [found] = refused(write("store = 3\nstep = = 4\n"))
    assert found.startswith("ids.toml: is not TOML: ")
    assert "line 2" in found
    (tmp_path / "latin.toml").write_bytes(b'store = "\xe9"')
    assert refused("latin.toml") == ["latin.toml: is not text in UTF-8"]


def test_the_environment_comes_before_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts become numbers where numbers are due; what is wrong is told with the variable."""
    path = write('store = "memory://"\n[generators.order]\nkind = "chain"\nstep = 5\n')
    for name, value in {
        "AIOCOSID_CONFIG": str(path),
        "AIOCOSID_STORE": "sqlite:///ids.db",
        "AIOCOSID_NAMESPACE": "123",
        "AIOCOSID_GENERATORS__ORDER__STEP": "70",
        "AIOCOSID_GENERATORS__ORDER__TTL": "1.5",
        "AIOCOSID_GENERATORS__ORDER__CONVERTER": "radix36",
        "AIOCOSID_SHARE": '{"kind": "snowflake", "layout": {"name": "leaf"}}',
        "AIOCOSID_SHARE__CONVERTER__PAD_START": "no",
    }.items():
        monkeypatch.setenv(name, value)
    share, order = check_settings().generators
    assert (order.store, order.counter, order.step) == ("sqlite:///ids.db", "123.order", 70)
    assert (share.kind, share.layout[:22], share.length) == (
        "snowflake",
        "<SnowflakeLayout leaf ",
        11,
    )
    found = load_settings(path).generators["order"]
    assert isinstance(found, ChainSettings)
    assert found.model_dump()["ttl"] == 1.5
    # A mapping is told all there is to know.
    mapped = load_settings(json.loads('{"generators": {}, "namespace": "shop"}'))
    assert (mapped.namespace, mapped.store) == ("shop", None)
    monkeypatch.setenv("AIOCOSID_GENERATORS__ORDER__STEP", "many")
    monkeypatch.setenv("AIOCOSID_GENERATORS__ORDER__STPE", "3")
    prefix = "AIOCOSID_GENERATORS__ORDER__"
    assert refused(None) == [
        f"{prefix}STEP: generators.order.step: must be a valid integer, not 'many'",
        f"{prefix}STPE: generators.order.stpe: is not a key here; did you mean step?",
    ]
    monkeypatch.setenv("AIOCOSID_GENERATORS", "{")
    assert refused(None) == ["AIOCOSID_GENERATORS: generators: must be a table, written in JSON"]


def test_variables_that_are_mistyped(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused if they are meant for us, warned of if they may be; Kubernetes puts in its own."""
    path = write('store = "sqlite:///ids.db"\n[generators.order]\nkind = "chain"\n')
    fine = (
        *("AIOCOSID_SERVICE_HOST", "AIOCOSID_PORT", "AIOCOSID_PORT_6379_TCP_ADDR"),
        *("AIOCOSID_STORE_SERVICE_PORT_HTTP", "AIOCOSID_A__B_SERVICE_HOST", "AIOCOSID_STORES_PORT"),
    )
    monkeypatch.setenv("AIOCOSID_DISPOSABLE", "1")  # of the stores, not of the settings
    for name in (*fine, "AIOCOSID_OWN"):
        monkeypatch.setenv(name, "s3cret")
    told = [str(each) for each in check_settings(path).warnings]
    assert [each.partition("; ")[0] for each in told] == ["AIOCOSID_OWN: own: is not a key here"]
    assert check_settings({"store": "memory://"}).warnings == ()
    wrong = {
        "AIOCOSID_FOO__BAR": "foo.bar: is not a key here; known are close_timeout, ",
        "AIOCOSID_GENERATOR__ORDER__STEP": "did you mean AIOCOSID_GENERATORS__ORDER__STEP?",
        "AIOCOSID_MACHINE_ID": "did you mean AIOCOSID_MACHINE__ID?",
        "AIOCOSID_SHARE_STEP": "did you mean AIOCOSID_SHARE__STEP?",
        "AIOCOSID_CONFIGS": "did you mean AIOCOSID_CONFIG?",
        "AIOCOSID_STROE": "did you mean AIOCOSID_STORE?",
    }
    for name in wrong:
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("AIOCOSID_GENERATORS__ORDER__STEP", "x")
    found = {each.partition(": ")[0]: each for each in refused(path)}
    assert set(found) == {*wrong, "AIOCOSID_GENERATORS__ORDER__STEP"}
    for name, words in wrong.items():
        assert words in found[name], found[name]
    assert "s3cret" not in str(found)
    monkeypatch.delenv("AIOCOSID_GENERATORS__ORDER__STEP")
    assert {each.partition(": ")[0] for each in refused(path)} == set(wrong)


def test_secrets_come_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers mount them, for keys of tables too; what is wrong with one is an error."""
    (secret := tmp_path / "store").write_text("redis://:s3cret@h/0\n")
    (other := tmp_path / "other").write_text("memory://")
    monkeypatch.setenv("AIOCOSID_STORE_FILE", str(secret))
    monkeypatch.setenv("AIOCOSID_STORES__CACHE_FILE", str(other))
    settings = load_settings()
    assert isinstance(settings.store, SecretStr)
    assert settings.store.get_secret_value() == "redis://:s3cret@h/0"
    assert settings.stores.keys() == {"cache"}
    assert Variables.read().text("store") == "redis://:s3cret@h/0"
    monkeypatch.setenv("AIOCOSID_STORE", "memory://")
    assert refused(None) == [
        "AIOCOSID_STORE: store: is set, and AIOCOSID_STORE_FILE too: unset one of them"
    ]
    monkeypatch.delenv("AIOCOSID_STORE")
    secret.unlink()
    os.mkfifo(secret)  # nothing ever writes to it
    for path in (str(secret), "redis://:s3cret@h/0"):
        monkeypatch.setenv("AIOCOSID_STORE_FILE", path)
        [told] = refused(None)
        assert told == (
            "AIOCOSID_STORE_FILE: store: must name a regular file with readable text: "
            "correct the path"
        )
    monkeypatch.delenv("AIOCOSID_STORE_FILE")
    monkeypatch.setenv("AIOCOSID_CONFIG_FILE", "x")
    [told] = refused(None)
    assert told.endswith("did you mean AIOCOSID_CONFIG?")


@pytest.mark.parametrize("text", ["true", "1", "YES", "on\r\n", "\ufefftrue"])
def test_yes_in_a_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """In each of its words, as an editor may have saved it; and no."""
    monkeypatch.setenv("AIOCOSID_CREATE", text)
    assert load_settings().create is True
    for word in ("false", "0", "No", "off"):
        monkeypatch.setenv("AIOCOSID_CREATE", word)
        assert load_settings().create is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("maybe", "must be true, 1, yes, on, false, 0, no or off, not 'maybe'"),
        ("\r\n", "is empty: give it a value, or unset it"),
    ],
)
def test_stores_for_tests_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    """In the words of all other truth values; what is none of them is an error at every door."""
    for word in ("true", "1", "YES", "on\r\n", "\ufefftrue"):
        monkeypatch.setenv("AIOCOSID_DISPOSABLE", word)
        assert is_disposable()
    for word in ("false", "0", "No", "\ufeffoff\n"):
        monkeypatch.setenv("AIOCOSID_DISPOSABLE", word)
        assert not is_disposable()
    monkeypatch.setenv("AIOCOSID_STROE", "memory://")
    monkeypatch.setenv("AIOCOSID_DISPOSABLE", text)
    told = f"AIOCOSID_DISPOSABLE: disposable: {reason}"
    with pytest.raises(InvalidSettingsError) as caught:
        is_disposable()
    assert [str(each) for each in caught.value.problems] == [told]
    monkeypatch.delenv("AIOCOSID_STROE")
    assert refused(None) == [told]
    monkeypatch.delenv("AIOCOSID_DISPOSABLE")
    assert not is_disposable()


def test_neither_yes_nor_no_in_a_variable(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error lists the words; a file has TOML's own."""
    monkeypatch.setenv("AIOCOSID_CREATE", "maybe")
    said = (
        "must be true, 1, yes, on, false, 0, no, off, disposable or a last day such as "
        "2026-12-31, not 'maybe'"
    )
    assert refused(None) == [f"AIOCOSID_CREATE: create: {said}"]
    monkeypatch.delenv("AIOCOSID_CREATE")
    said = (
        "False, True, 'disposable' or the last day on which opening may create tables and the "
        "marker, such as '2026-12-31'"
    )
    assert refused(write('create = "yes"\n')) == [f"ids.toml: create: must be {said}, not 'yes'"]


def test_what_editors_put_around_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte order mark and line ends, around a value, JSON, the name of a file and its text."""
    path = tmp_path / "ids.toml"
    path.write_bytes(b'\xef\xbb\xbfnamespace = "shop"\r\n')
    monkeypatch.setenv("AIOCOSID_CONFIG", f"{path}\n")
    monkeypatch.setenv("AIOCOSID_STORE", "\ufeffmemory://\r\n")
    monkeypatch.setenv("AIOCOSID_GENERATORS", '\ufeff{"order": {"kind": "chain"}}\n')
    monkeypatch.setenv("AIOCOSID_GENERATORS__ORDER__NAME", "\ufefforder\n")
    found = load_settings()
    assert (found.namespace, found.generators["order"].name) == ("shop", "order")
    assert check_settings().generators[0].store == "memory://"


@pytest.mark.parametrize("text", ["", "\r\n", "\ufeff"])
def test_a_variable_that_is_empty(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """It was meant to have a value: of a secret that is missing, for one."""
    for name in ("CONFIG", "STORE", "MACHINE__INSTANCE_ID"):
        monkeypatch.setenv(f"AIOCOSID_{name}", text)
    told = "is empty: give it a value, or unset it"
    found = [each.partition(": ")[0] for each in refused(None) if told in each]
    assert found == ["AIOCOSID_CONFIG", "AIOCOSID_MACHINE__INSTANCE_ID", "AIOCOSID_STORE"]


def test_the_keys_that_variables_may_name() -> None:
    """The command line knows them without pydantic."""
    assert {*KEYS} == {*Settings.model_fields}
    single = {"close_timeout", "create", "namespace", "store"}
    assert {*KEYS} - {*TABLES} == single


def test_the_variable_that_says_so(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for what its JSON holds, and where that has another type."""
    for name, value in {
        "AIOCOSID_STORE": "memory://",
        "AIOCOSID_GENERATORS__ORDER__KIND": "chain",
        "AIOCOSID_GENERATORS__ORDER__CONVERTER__PREFIX": "[1]",
        "AIOCOSID_GENERATORS__ORDER__CONVERTER__SUFFIX": '{"a": 1}',
        "aiocosid_share": '{"kind": "chain", "step": -5}',
    }.items():
        monkeypatch.setenv(name, value)
    assert [each.split(": ")[:2] for each in refused(None)] == [
        ["aiocosid_share", "share.step"],
        ["AIOCOSID_GENERATORS__ORDER__CONVERTER__PREFIX", "generators.order.converter.prefix"],
        ["AIOCOSID_GENERATORS__ORDER__CONVERTER__SUFFIX", "generators.order.converter.suffix"],
    ]
    monkeypatch.delenv("AIOCOSID_STORE")
    monkeypatch.setenv("aiocosid_share", '{"step": 5}')  # beside what the file says
    (found,) = [each for each in refused(write('[share]\nkind = "chain"\n')) if ": share: " in each]
    assert found.startswith("ids.toml: share: needs a")


def test_no_secret_is_shown(write: Write) -> None:
    """Passwords and keys: not in problems, tracebacks, reports or settings."""
    head = 'store = "redis://app:s3cret@h/0?password=s3cret"\n'
    wrong = (
        f'{head}[generators.a]\nkind = "redis://:s3cret@h"\n',
        'store = "redis://app:s3cret@h/0?nonsense=s3cret"\n[share]\nkind = "chain"\n',
        'store = "oracle://app:s3cret@h"\n[share]\nkind = "chain"\n',
        'store = "s3cret"\n[share]\nkind = "chain"\n',
        'store = ["redis://app:s3cret@h/0"]\n',
        '[stores]\nmain = "redis://app:s3cret@h:port"\n',
        f'{head}[share]\nkind = "chain"\nconverter = {{type = "opaque", key = "s3cret"}}\n',
        f'{head}[share]\nkind = "chain"\nconverter = {{type = "radix62", key = "s3cret"}}\n',
        f'{head}[share]\nkind = "chain"\nconverter = {{type = "opaque", key = ["s3cret"]}}\n',
        f'{head}[share]\nkind = "chain"\nconverter = {{type = "opaque", key = 4711}}\n',
    )
    for text in wrong:
        with pytest.raises(InvalidSettingsError) as caught:
            load_settings(write(text))
        shown = "".join(traceback.format_exception(caught.value))
        assert "s3cret" not in shown, shown
        assert "4711" not in str(caught.value)
        assert "s3cret" not in repr(caught.value.problems)
    fine = write(f'{head}[share]\nkind = "chain"\n')
    assert "s3cret" not in repr(load_settings(fine)) + repr(check_settings(fine))
    for url, shown in {
        "redis://app:s3cret@h:1/0?password=s3cret": "redis://***@h:1/0",
        "redis://h/0": "redis://h/0",
        "sqlite:///a/ids.db": "sqlite:///a/ids.db",
        "redis://:s3/cret@h": "redis://***",
        "redis://:s3?cret@h": "redis://***",
        "redis://[s3cret": "redis://***",
    }.items():
        assert shown_url(url) == shown


def test_settings_can_be_made_in_python() -> None:
    """Typed objects instead of tables."""
    settings = Settings.model_validate({"store": "memory://"})
    assert load_settings(settings) is settings
    chain = ChainSettings(kind="chain", step=5)
    made = Settings(store="memory://", generators={"order": chain})  # type: ignore[arg-type]  # a text does
    [seen] = check_settings(made).generators
    assert (seen.step, seen.name) == (5, "order")


def test_without_the_extra_it_is_named() -> None:
    """Settings alone ask for pydantic."""
    code = """
import json, sys; sys.modules['pydantic'] = None
from aiocosid.provider import configure
try: configure({})
except ImportError as error: print(json.dumps(str(error)))
"""
    assert "pip install 'aiocosid[settings]'" in run_python(code)
