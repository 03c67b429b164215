"""Ids in dishka: a provider of generators, which live as long as the container."""

from __future__ import annotations

from collections.abc import AsyncGenerator  # noqa: TC003 - dishka reads the annotations
from typing import TYPE_CHECKING, Any

from dishka import Provider as DishkaProvider
from dishka import Scope

from .. import generator_named
from ..abc import Provider
from ._source import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._source import Source

__all__ = ("CosIdProvider",)


class CosIdProvider(DishkaProvider):
    """Gives generators by their types; they are open until the container is closed.

    Several generators of one class need types of their own, as `NewType` makes them::

        OrderIds = NewType("OrderIds", aiocosid.SegmentChainId)

        container = make_async_container(CosIdProvider(open_ids, {OrderIds: "order"}))
        orders = await container.get(OrderIds)

    The first of them that is asked for opens the provider, which is `aiocosid.abc.Provider` in the
    container, and the process's default one besides.

    Args:
        source: a provider that is not open yet; or a function that returns one, or any asynchronous
            context manager of one.
        generators: the name of the generator for each type.
    """

    def __init__(self, source: Source, generators: Mapping[object, str] | None = None) -> None:
        super().__init__(scope=Scope.APP)
        names = dict(generators or {})

        async def provider() -> AsyncGenerator[Provider]:
            async with opened(source) as found:
                for name in names.values():
                    generator_named(name, found)  # raises if there is none
                yield found

        self.provide(provider, provides=Provider)
        for kind, name in names.items():
            self.provide(_getter(name), provides=kind)


def _getter(name: str) -> Callable[[Provider], object]:
    def get(ids: Provider) -> Any:  # noqa: ANN401 - as the type says
        return generator_named(name, ids)

    return get
