"""What is a user's own in settings: stores, as objects and by import path."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from aiocosid import StringIdGenerator, configure
from aiocosid.abc import IdConverter, IdGenerator, IdSegmentDistributor
from aiocosid.converter import ToStringIdConverter
from aiocosid.errors import InvalidSettingsError, SegmentUnavailableError
from aiocosid.generators import CounterId
from aiocosid.provider.settings import Settings, check_settings, configured_stores, load_settings
from aiocosid.stores.memory import MemoryStore
from aiocosid.stores.postgres import PostgresStore
from aiocosid.testing import FailingDistributor


class OwnStore(MemoryStore):
    """Counts what is done with it; fails as long as it is told to."""

    def __init__(self, login: str = "", *, fails: bool = False) -> None:
        super().__init__()
        if login == "wrong":
            raise OSError(f"login {login}")
        self.fails = fails
        self.calls: list[str] = []

    def segment_distributor(self, **options: Any) -> IdSegmentDistributor:  # type: ignore[override]
        made = FailingDistributor(super().segment_distributor(**options))
        if self.fails:
            made.fail()
        return made

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> None:
        self.calls.append("create_schema")
        await super().create_schema(disposable=disposable, after_loss=after_loss)

    async def aclose(self) -> None:
        self.calls.append("aclose")
        await super().aclose()


def no_store() -> object:
    return object()


HERE = __name__
NUMBERS = iter(range(1000))


def settings(**others: Any) -> dict[str, Any]:
    """Return settings of one generator, of whose counter nobody else knows."""
    order = {"kind": "segment", "step": 1, "name": f"own-{next(NUMBERS)}", "wait_timeout": 0.2}
    return {"generators": {"order": order}, **others}


def problems(given: object) -> list[str]:
    with pytest.raises(InvalidSettingsError) as caught:
        configure(given)  # type: ignore[arg-type]  # anything
    return [str(each) for each in caught.value.problems]


@pytest.mark.parametrize("where", ["top", "generator", "stores"])
async def test_a_store_as_an_object(where: str) -> None:
    """As for `connect`, its tables are created if that is asked for, and it stays open."""
    store, given = OwnStore(), settings(create=True)
    if where == "top":
        given["store"] = store
    elif where == "generator":
        given["generators"]["order"]["store"] = store
    else:
        given |= {"store": "mine", "stores": {"mine": store}}
    assert check_settings(given).generators[0].store == "OwnStore"
    for source in (given, Settings.model_validate(given)):
        async with configure(source, default=False) as ids:
            await ids["order"].next_id()
    assert store.calls == ["create_schema", "create_schema"]
    assert configured_stores(given) == []


async def test_a_test_can_have_its_store_fail() -> None:
    async with configure(settings(store=OwnStore(fails=True)), default=False) as ids:
        with pytest.raises(SegmentUnavailableError):
            await ids["order"].next_id()


def test_two_objects_are_two_stores() -> None:
    """Also where only their machine ids tell; one object is one store."""
    one, other = OwnStore(), OwnStore()
    flakes = {"a": {"kind": "snowflake", "store": one}, "b": {"kind": "snowflake", "store": other}}
    assert len(configure({"generators": flakes}, default=False)._leases()) == 2
    assert any("another store" in each for each in warnings(flakes))
    flakes["b"]["store"] = one
    assert len(configure({"generators": flakes}, default=False)._leases()) == 1
    assert not any("another store" in each for each in warnings(flakes))


def warnings(generators: dict[str, Any]) -> list[str]:
    return [str(each) for each in check_settings({"generators": generators}).warnings]


async def test_a_store_by_its_path(tmp_path: Path) -> None:
    """It is made with its options, and closed at the end, as it was made here."""
    file = tmp_path / "ids.toml"
    file.write_text(
        f'store = "mine"\n[stores.mine]\nmake = "{HERE}:OwnStore"\n'
        'options = {login = "right"}\n'
        f'[generators.order]\nkind = "chain"\nname = "own-{next(NUMBERS)}"\n'
    )
    provider = configure(file, default=False)
    [store] = provider._stores
    assert isinstance(store, OwnStore)
    async with provider as ids:
        assert await ids["order"].next_id() == 1
    assert store.calls == ["aclose"]
    [(name, make, namespace)] = configured_stores(file)
    assert (name, type(make()), namespace) == ("mine", OwnStore, "cosid")
    assert "right" not in repr(Settings.model_validate({"stores": {"mine": own(login="right")}}))


def own(**options: Any) -> dict[str, Any]:
    return {"make": f"{HERE}:OwnStore", "options": options}


def test_a_store_that_cannot_be_made() -> None:
    """Its key, and no value that may be secret."""
    for told, reason in (
        ({"make": "none.such:Store"}, "ModuleNotFoundError: No module named 'none'"),
        (
            {"make": f"{HERE}:no_store"},
            "it has to be what makes a store; it made an object of object",
        ),
        (own(login="wrong"), "it has to be what makes a store; it failed: OSError"),
        (own(logni="x"), "unexpected keyword argument 'logni'"),
    ):
        found = problems(settings(store="mine", stores={"mine": told}))
        assert len(found) == 1
        assert found[0].startswith("stores.mine.make: "), found
        assert reason in found[0]
        assert "wrong" not in found[0]
    wrong = {"make": f"{HERE}:OwnStore", "option": {}}
    [problem] = problems(settings(store="mine", stores={"mine": wrong}))
    assert problem == "stores.mine.option: is no key here; did you mean options?"


def test_what_is_no_store_at_all() -> None:
    for wrong in (3, object()):
        [problem] = problems(settings(store=wrong))
        assert problem.startswith("store: ")
    [problem] = problems(settings(store="mine", stores={"mine": 3}))
    assert problem.startswith("stores.mine: ")


def test_a_tiered_store_on_objects() -> None:
    """A root without a URL that would tell it from others has to be named: spans would mix."""
    cache = "redis://localhost:1/0"
    for root in (PostgresStore.from_url("postgresql://db/shop"), "mine"):
        mine = {"make": "aiocosid:open_store", "options": {"url": "postgresql://db/shop"}}
        tiered = {"root": root, "cache": cache}
        given = settings(store="fast", stores={"fast": tiered, "mine": mine})
        [problem] = problems(given)
        assert problem.startswith("stores.fast.root_name: ")
        tiered["root_name"] = "shop"
        [seen] = check_settings(given).generators
        assert seen.store.endswith(" under redis://localhost:1/0")


class Dashed(IdConverter):
    """A converter of the user's."""

    def __init__(self, dash: str = "-") -> None:
        if dash == "login":
            raise OSError(dash)
        self.dash = dash

    def as_str(self, new_id: int, /) -> str:
        return self.dash + str(new_id)

    def as_int(self, text: str, /) -> int:
        return int(text.removeprefix(self.dash))


@pytest.mark.parametrize(
    ("converter", "text"),
    [
        (f"{HERE}:Dashed", "-1"),
        ({"make": f"{HERE}:Dashed", "options": {"dash": "+"}, "prefix": "P"}, "P+1"),
        ({"make": Dashed, "suffix": "S"}, "-1S"),
    ],
)
async def test_a_converter_by_its_path(converter: object, text: str) -> None:
    """In place of the type; prefix, suffix and the like are put around it."""
    given = settings(store="memory:")
    given["generators"]["order"]["converter"] = converter
    async with configure(given, default=False) as ids:
        assert await ids["order"].next_id() == text
    [seen] = check_settings(given).generators
    assert (seen.example, seen.converter) == (text, "Dashed")


def test_a_converter_that_cannot_be_made(tmp_path: Path) -> None:
    """Its key, and the file."""
    dashed = f"{HERE}:Dashed"
    for told, key, reason in (
        ("none.such:Text", ".make", "ModuleNotFoundError"),
        (f"{HERE}:no_store", ".make", "it has to be what makes a converter; it made an object of"),
        ({"make": dashed, "options": {"dash": "login"}}, ".make", "it failed: OSError"),
        ({"make": dashed, "options": {"dish": "-"}}, ".make", "keyword argument 'dish'"),
        ({"make": dashed, "char_size": 3}, ".char_size", "has no place here: make says"),
        ({"make": dashed, "type": "radix62"}, ".type", "has no place here: make says"),
        ({"options": {}, "type": "radix62"}, None, ""),
        ({"options": {"dash": "-"}}, ".options", "goes with make"),
    ):
        given = settings(store="memory:")
        given["generators"]["order"]["converter"] = told
        if key is None:
            configure(given, default=False)
            continue
        [problem] = problems(given)
        assert problem.startswith("generators.order.converter"), problem
        assert key in problem or isinstance(told, str)
        assert reason in problem
        assert "login" not in problem
    file = tmp_path / "ids.toml"
    file.write_text(
        'store = "memory:"\n[generators.order]\nkind = "chain"\nconverter = "none.such:Text"\n'
    )
    [problem] = problems(file)
    assert problem.startswith(f"{file}: generators.order.converter: it has to be what can be ")


def own_generator(width: int = 3) -> StringIdGenerator:
    return StringIdGenerator(CounterId(), ToStringIdConverter(pad_start=True, char_size=width))


def foreign() -> object:
    """Return a generator that a provider cannot open: its life is unknown."""
    return type("Foreign", (IdGenerator,), dict.fromkeys(IdGenerator.__abstractmethods__))()


async def test_a_generator_by_its_path() -> None:
    """Made by a function, or of a class; with a converter around it."""
    made = {"kind": "own", "make": f"{HERE}:own_generator", "options": {"width": 4}}
    given: dict[str, Any] = {
        "generators": {
            "order": made,
            "count": {"kind": "own", "make": "aiocosid.generators:CounterId"},
            "text": {"kind": "own", "make": CounterId, "converter": "radix62"},
        }
    }
    async with configure(given, default=False) as ids:
        found = [await ids[name].next_id() for name in ("order", "count", "text")]
    assert found == ["0001", 1, "00000000001"]
    report = check_settings(given)
    assert {(each.counter, each.example) for each in report.generators} == {("", "")}
    assert report.warnings == ()


def test_a_generator_that_cannot_be_made() -> None:
    for told, key, reason in (
        ({}, "make", "is missing"),
        ({"make": "none.such:Ids"}, "make", "ModuleNotFoundError"),
        ({"make": f"{HERE}:no_store"}, "make", "it has to be what makes a generator; it made"),
        ({"make": f"{HERE}:foreign"}, "make", "what makes a generator of this library"),
        ({"make": f"{HERE}:own_generator", "options": {"with": 3}}, "make", "argument 'with'"),
        ({"make": f"{HERE}:own_generator", "name": "x"}, "name", "has no place here: make and"),
        ({"make": f"{HERE}:own_generator", "store": "memory:"}, "store", "has no place here"),
    ):
        [problem] = problems({"generators": {"order": {"kind": "own", **told}}})
        assert problem.startswith(f"generators.order.{key}: "), problem
        assert reason in problem


@pytest.mark.parametrize(
    ("given", "create"),
    [
        (True, True),
        ("disposable", "disposable"),
        ("2026-12-31", "2026-12-31"),
        (date(2026, 12, 31), "2026-12-31"),  # as TOML has it
    ],
)
def test_what_may_be_created(given: object, create: object) -> None:
    assert load_settings({"store": "memory://", "create": given}).create == create


@pytest.mark.parametrize(("text", "create"), [("yes", True), ("false", False), ("2026-12-31", ...)])
def test_what_may_be_created_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, create: object
) -> None:
    monkeypatch.setenv("AIOCOSID_CREATE", text)
    monkeypatch.setenv("AIOCOSID_STORE", "memory://")
    assert load_settings().create == (text if create is ... else create)


@pytest.mark.parametrize("given", [1, "soon", "2026-13-01", datetime(2026, 1, 1, tzinfo=UTC)])
def test_what_may_not_be_created(given: object) -> None:
    with pytest.raises(InvalidSettingsError, match=r"create.*'disposable', or the last day"):
        load_settings({"store": "memory://", "create": given})
