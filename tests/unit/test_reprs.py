"""Every public object says its name and its condition where it is logged or printed."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiocosid import StringIdGenerator, connect, sync
from aiocosid.abc.options import Options
from aiocosid.converter import Radix62IdConverter
from aiocosid.generators import CounterId
from aiocosid.machine import InstanceId, MachineIdLease
from aiocosid.provider import ConfiguredProvider, store_from_url
from aiocosid.segment import GroupBy, GroupedSegmentId, SegmentChainId, SegmentId
from aiocosid.server import App
from aiocosid.snowflake import RADIX36, RADIX62, CosIdFriendlyText, CosIdGenerator, SnowflakeId
from aiocosid.testing import CountingProvider

from ._source import public_modules

# What a framework or a provider calls, and nobody opens, closes or names.
HOOKS = {
    *("CosIdErrorsMiddleware", "CosIdPlugin", "CosIdWorkerPlugin", "ErrorMiddleware"),
    *("HealthApp", "StatisticsApp", "Instruments", "LoggingInstrument"),
    *("OpenTelemetryInstrument", "PrometheusInstrument"),
    *("SegmentPrimaryKey", "SnowflakePrimaryKey", "TextPrimaryKey", "Rates"),
}
STORE = store_from_url("memory:")
ONE = InstanceId("a:1")


def public_classes() -> Iterator[type]:
    for name in sorted(public_modules()):
        module = importlib.import_module(name)
        found = (getattr(module, each) for each in getattr(module, "__all__", ()))
        yield from (each for each in found if inspect.isclass(each))


def is_an_object(each: type) -> bool:
    """Whether users meet instances of it; not of declarations and contracts to derive from."""
    is_declared = inspect.isabstract(each) or getattr(each, "_is_protocol", False)
    is_contract = each.__name__.endswith("Contract")
    return not (is_declared or is_contract or issubclass(each, Options))


def test_every_public_class_has_a_repr() -> None:
    """``<aiocosid.x.Y object at 0x7f...>`` tells nobody which one it is."""
    met = {each for each in public_classes() if each.__module__.startswith("aiocosid")}
    silent = {
        each.__name__
        for each in met
        if "object" in each.__repr__.__qualname__ and is_an_object(each)
    }
    assert silent == HOOKS


def lease(bits: int = 10) -> MachineIdLease:
    return MachineIdLease(
        STORE.machine_id_distributor(namespace="shop", instance_id=ONE), bits=bits
    )


def chain() -> SegmentChainId:
    return SegmentChainId(STORE.segment_distributor(namespace="shop", name="order"))


def flakes() -> SnowflakeId:
    return SnowflakeId(lease(), name="event")


MADE: dict[str, Callable[[], Any]] = {
    "SegmentChainId shop.order": chain,
    "SegmentId shop.order": lambda: SegmentId(
        STORE.segment_distributor(namespace="shop", name="order")
    ),
    "GroupedSegmentId shop.order": lambda: GroupedSegmentId(
        STORE, namespace="shop", name="order", group_by=GroupBy.year(zone="UTC")
    ),
    "MachineIdLease shop": lease,
    "SnowflakeId shop.event": flakes,
    "CounterId shop.order": lambda: CounterId(namespace="shop", name="order"),
    "IdProvider shop": lambda: connect(STORE, namespace="shop"),
    "ConfiguredProvider": lambda: ConfiguredProvider({}, default=False),
}


@pytest.mark.parametrize("what", MADE)
async def test_what_is_opened_says_whether_it_is(what: str) -> None:
    """By name and one word; more may follow."""
    await STORE.initialize(confirm_no_holders=True)
    subject = MADE[what]()
    assert repr(subject).startswith(f"<{what} not open")
    async with subject:
        assert repr(subject).startswith(f"<{what} open")
    assert repr(subject).startswith(f"<{what} closed")


def test_threads_counterparts_say_it_too() -> None:
    """Of a provider and each of its generators."""
    ids = sync.connect("memory:", namespace="shop")
    order = ids.segment_chain("order", batch=10)
    assert (repr(ids), repr(order)) == (
        "<SyncIdProvider not open generators=1>",
        "<SyncIdGenerator order not open in_hand=0>",
    )
    with ids:
        order.next_id()
        assert repr(ids) == "<SyncIdProvider open generators=1>"
        assert repr(order) == "<SyncIdGenerator order open in_hand=9>"
    assert repr(ids) == "<SyncIdProvider closed generators=1>"
    assert repr(order) == "<SyncIdGenerator order closed in_hand=0>"
    assert repr(sync.SyncIdGenerator(chain)) == "<SyncIdGenerator not open in_hand=0>"


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (STORE, "<MemoryStore memory>"),
        (STORE.segment_distributor(namespace="shop", name="order", step=5), "shop.order step=5>"),
        (STORE.machine_id_distributor(namespace="shop", instance_id=ONE), "shop a:1>"),
        (
            StringIdGenerator(chain(), Radix62IdConverter()),
            "on <SegmentChainId shop.order not open",
        ),
        (RADIX62, "<CosIdRadixText radix=62 charSize=15>"),
        (CosIdFriendlyText(zone="UTC"), "<CosIdFriendlyText zone=UTC padStart=True>"),
        (
            CosIdGenerator(lease(bits=20), text=RADIX36),
            "radix=36 charSize=17> on <SnowflakeId shop.",
        ),
        (App(lambda: connect(STORE)), "<App of <Service cosid not open>>"),
        (CountingProvider(), "<CountingProvider generators=0>"),
        (CountingProvider()["order"], "<GivenIds order last=0>"),
    ],
)
def test_others_say_what_they_are(made: object, shown: str) -> None:
    assert re.search(re.escape(shown), repr(made)), repr(made)
