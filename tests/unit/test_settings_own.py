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
    assert any("a store other than" in each for each in warnings(flakes))
    flakes["b"]["store"] = one
    assert len(configure({"generators": flakes}, default=False)._leases()) == 1
    assert not any("a store other than" in each for each in warnings(flakes))


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


def with_store(told: object) -> dict[str, Any]:
    return settings(store="mine", stores={"mine": told})


def with_converter(told: object) -> dict[str, Any]:
    given = settings(store="memory:")
    given["generators"]["order"]["converter"] = told
    return given


def with_generator(**told: object) -> dict[str, Any]:
    return {"generators": {"order": {"kind": "own", **told}}}


DASHED = f"{HERE}:Dashed"
OWN = f"{HERE}:own_generator"
CONVERTER = "generators.order.converter"
ORDER = "generators.order"


@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        (with_store({"make": "none.such:Store"}), "stores.mine.make", "No module named 'none'"),
        (with_store({"make": f"{HERE}:no_store"}), "stores.mine.make", "it made an object of"),
        (with_store(own(login="wrong")), "stores.mine.make", "it failed: OSError"),
        (with_store(own(colour="x")), "stores.mine.make", "unexpected keyword argument 'colour'"),
        (with_store(own() | {"option": {}}), "stores.mine.option", "did you mean options?"),
        (with_store(3), "stores.mine", ""),
        (settings(store=3), "store", ""),
        (settings(store=object()), "store", ""),
        (with_converter("none.such:Text"), CONVERTER, "ModuleNotFoundError"),
        (with_converter(f"{HERE}:no_store"), CONVERTER, "must make a converter: it made"),
        (
            with_converter({"make": DASHED, "options": {"dash": "login"}}),
            f"{CONVERTER}.make",
            "it failed: OSError",
        ),
        (
            with_converter({"make": DASHED, "options": {"dish": "-"}}),
            f"{CONVERTER}.make",
            "keyword argument 'dish'",
        ),
        *(
            (
                with_converter({"make": DASHED, key: value}),
                f"{CONVERTER}.{key}",
                "has no place here: make says",
            )
            for key, value in (("char_size", 3), ("type", "radix62"))
        ),
        (with_converter({"options": {"dash": "-"}}), f"{CONVERTER}.options", "requires make"),
        (with_generator(), f"{ORDER}.make", "is missing"),
        (with_generator(make="none.such:Ids"), f"{ORDER}.make", "ModuleNotFoundError"),
        (
            with_generator(make=f"{HERE}:no_store"),
            f"{ORDER}.make",
            "must make a generator: it made",
        ),
        (with_generator(make=f"{HERE}:foreign"), f"{ORDER}.make", "a generator of this library"),
        (with_generator(make=OWN, options={"with": 3}), f"{ORDER}.make", "argument 'with'"),
        (with_generator(make=OWN, name="x"), f"{ORDER}.name", "has no place here: make and"),
        (with_generator(make=OWN, store="memory:"), f"{ORDER}.store", "has no place here"),
    ],
)
def test_what_cannot_be_made(given: dict[str, Any], key: str, reason: str) -> None:
    """Its key, and no value that may be secret."""
    [problem] = problems(given)
    assert problem.startswith(f"{key}: ")
    assert reason in problem
    assert "wrong" not in problem
    assert "login" not in problem


def test_a_tiered_store_on_objects() -> None:
    """A root without a URL that would tell it from others has to be named: spans would mix."""
    cache = "redis://localhost:1/0"
    for root in (PostgresStore.from_url("postgresql://db/shop"), "mine"):
        mine = {"make": "aiocosid:store_from_url", "options": {"url": "postgresql://db/shop"}}
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


def test_a_converter_in_a_file(tmp_path: Path) -> None:
    """Options may be empty; an error has the file."""
    configure(with_converter({"options": {}, "type": "radix62"}), default=False)
    file = tmp_path / "ids.toml"
    file.write_text(
        'store = "memory:"\n[generators.order]\nkind = "chain"\nconverter = "none.such:Text"\n'
    )
    [problem] = problems(file)
    assert problem.startswith(f"{file}: generators.order.converter: must be importable, ")


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
    with pytest.raises(InvalidSettingsError, match=r"create.*'disposable' or the last day"):
        load_settings({"store": "memory://", "create": given})
