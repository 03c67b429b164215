"""The default provider: set for a while, found by name."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import aiocosid
from aiocosid import sync
from aiocosid.errors import GeneratorMissingError, InvalidArgumentError, NotOpenError


def test_without_one_it_says_how_to_set_it() -> None:
    with pytest.raises(NotOpenError, match="use_provider"):
        aiocosid.default_provider()


def test_the_last_one_that_has_not_ended_counts() -> None:
    one, two = aiocosid.connect("memory://"), aiocosid.connect("memory://")
    first, second = aiocosid.use_provider(one), aiocosid.use_provider(two)
    assert first.__enter__() is one
    second.__enter__()
    assert aiocosid.default_provider() is two
    first.__exit__(None, None, None)  # out of order
    assert aiocosid.default_provider() is two
    second.__exit__(None, None, None)
    with pytest.raises(NotOpenError):
        aiocosid.default_provider()


async def test_a_generator_is_found_by_its_name() -> None:
    async with aiocosid.connect("memory://") as ids:
        orders = await ids.segment_chain("order")
        with aiocosid.use_provider(ids):
            assert aiocosid.generator_named("order") is orders
            with pytest.raises(InvalidArgumentError, match="'order'"):
                aiocosid.generator_named()


def test_what_is_no_provider_is_refused_at_once() -> None:
    ids = sync.connect("memory://")
    wrong: tuple[Any, ...] = (None, ids, ids["order"], {}, "ids")
    for each in wrong:
        with (
            pytest.raises(InvalidArgumentError, match=r"aiocosid\.sync directly") as caught,
            aiocosid.use_provider(each),
        ):
            pytest.fail("it was taken")
        again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
        assert str(again) == str(caught.value)
    with pytest.raises(NotOpenError):
        aiocosid.default_provider()


def test_a_provider_that_cannot_be_iterated_is_not() -> None:
    class Bare:
        def __getitem__(self, name: str) -> Any:
            if name == "order":
                raise KeyError(name)
            return name

    bare: Any = Bare()
    with pytest.raises(GeneratorMissingError, match="'order'; the provider has none yet; "):
        aiocosid.generator_named("order", bare)
