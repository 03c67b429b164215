"""Several independent stores as one, with all their counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, Self
from urllib.parse import parse_qsl

from ..._life.clock import SYSTEM_CLOCK
from ...abc import DEFAULT_NAMESPACE, Counter, Store
from ...abc._ids import check_integer, check_seconds
from ...errors import CounterMissingError, InvalidArgumentError, UnsupportedByStoreError
from .._over import StoreOverStores
from ._distributor import StripedIdSegmentDistributor
from ._health import StoreHealth
from ._residue_class import FEWEST_STORES, MOST_STORES, SUFFIX, ResidueClass, highest_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...abc import Clock

__all__ = ("StripedStore", "read_url")

# Three of these are below the default 2 s timeout of a generator's call.
STORE_TIMEOUT: Final = 0.6  # seconds

EXPECTED: Final = "striped:?store=URL&store=URL, percent-encoded; store_timeout=SECONDS may follow"


class StripedStore(StoreOverStores[StripedIdSegmentDistributor]):
    """Counters in several independent stores, of which any one is enough.

    It hands out no machine ids: they need one store that decides.

    Attributes:
        store_timeout: seconds that one store has to answer.
        residues: the residue class of each store.
        health: the health of each store, shared by all distributors.
        clock: time.
    """

    __slots__ = ("clock", "health", "residues", "store_timeout")

    _counter = StripedIdSegmentDistributor

    def __init__(
        self,
        stores: Sequence[Store],
        *,
        store_timeout: float = STORE_TIMEOUT,
        owns_stores: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Combine stores; nothing is sent yet.

        Args:
            stores: two to nine stores with separate data, always the same number in the same order:
                each counter contains its place and their number, and refuses another one.  They
                have to support `Store.set_floor`.
            store_timeout: seconds that one store has to answer, before the next is asked.
            owns_stores: whether `aclose` closes them.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        _check_stores(stores)
        check_seconds("store_timeout", store_timeout)
        super().__init__(stores, owns_stores=owns_stores)
        self.residues: list[ResidueClass] = [
            ResidueClass(number, len(stores)) for number in range(len(stores))
        ]
        self.health: list[StoreHealth] = [StoreHealth(clock) for _ in stores]
        self.store_timeout: float = store_timeout
        self.clock: Clock = clock

    @classmethod
    def from_url(cls, url: str, *, open_store: Callable[[str], Store]) -> Self:
        """Combine the stores of a URL, which are closed with this one.

        Args:
            url: ``striped:?store=URL&store=URL``, each percent-encoded; ``store_timeout`` may
                follow, in seconds.
            open_store: opens each of them: `aiocosid.open_store`.

        Raises:
            InvalidArgumentError: the URL, or one within, is malformed.
            MissingExtraError: a store's driver is not installed.
        """
        urls, store_timeout = read_url(url)
        stores = [open_store(each) for each in urls]
        return cls(stores, store_timeout=store_timeout, owns_stores=True)

    def __repr__(self) -> str:
        """Show the stores, without credentials."""
        return f"<{type(self).__name__} {' '.join(repr(store) for store in self._stores)}>"

    async def create_schema(self) -> None:
        """Create what each store needs.

        Raises:
            StoreError: a store refuses or cannot be reached; those before it are ready.
        """
        for store in self._stores:
            await store.create_schema()

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:
        """Return the striped counters, each with the highest id of all stores.

        Raises:
            StoreError: a store refuses or cannot be reached; the others cannot replace its answer.
        """
        found: dict[str, int] = {}
        for store, residue in zip(self._stores, self.residues, strict=True):
            for counter in await store.counters(namespace=namespace):
                name, value = counter.namespaced_name, counter.last_max_id
                if name.endswith(SUFFIX) and ResidueClass.noted_in(value) == (residue, False):
                    name = name.removesuffix(SUFFIX)
                    found[name] = max(found.get(name, 0), residue.last_id(value))
        return [Counter(namespaced_name=name, last_max_id=found[name]) for name in sorted(found)]

    async def set_floor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        above: int,
        create: bool = True,
    ) -> Counter:
        """Raise a counter in each store where it is lower or missing; costs an id in each.

        A cancelled or failed call may have taken effect in some stores: repeat it, which is safe.

        Raises:
            InvalidArgumentError: ``above`` is outside its range.
            CounterMissingError: no store has such a counter, and ``create`` is False.
            StoreError: a store refuses, cannot be reached, or is at another place.
        """
        check_integer("above", above, at_least=0, at_most=highest_id(len(self.residues)))
        counter = self.segment_distributor(namespace=namespace, name=name)
        if not create:
            known = {each.namespaced_name for each in await self.counters(namespace=namespace)}
            if counter.namespaced_name not in known:
                raise CounterMissingError("striped", counter=counter.namespaced_name)
        highest = above
        for stripe in counter._stripes:  # all of them, before any can grant
            await stripe.bind()
        for stripe in counter._stripes:
            highest = max(highest, await stripe.raise_to(above))
        return Counter(namespaced_name=counter.namespaced_name, last_max_id=highest)

    def _holder(self) -> NoReturn:
        reason = "it hands out no machine ids: they need a single store, such as one of these"
        raise UnsupportedByStoreError(StripedIdSegmentDistributor.store, reason)


def _check_stores(stores: Any) -> None:  # noqa: ANN401 - whatever was given
    """Raise `InvalidArgumentError` unless they are two to nine different stores."""
    given: list[Any] = list(stores) if type(stores) in {list, tuple} else []
    are_stores = all(isinstance(each, Store) for each in given)
    if not are_stores or not FEWEST_STORES <= len(given) <= MOST_STORES:
        expected = f"a list of {FEWEST_STORES} to {MOST_STORES} stores"
        raise InvalidArgumentError("stores", stores, expected=expected)
    if len({id(each) for each in given}) < len(given):
        raise InvalidArgumentError("stores", stores, expected="each of them another one")


def read_url(url: str) -> tuple[list[str], float]:
    """Return the stores' URLs in their order, and the seconds that one has to answer.

    Raises:
        InvalidArgumentError: it is malformed; it is not shown, as it may hold passwords.
    """
    scheme, _, query = url.partition(":")
    given = parse_qsl(query.removeprefix("?").replace("+", "%2B"), keep_blank_values=True)
    stores = [text for name, text in given if name == "store"]
    timeouts = [text for name, text in given if name == "store_timeout"]
    is_known = len(stores) + len(timeouts) == len(given) and len(timeouts) <= 1
    if scheme.lower() != "striped" or not query.startswith("?") or not stores or not is_known:
        raise InvalidArgumentError("url", "striped:...", expected=EXPECTED)
    try:
        return stores, float(timeouts[0]) if timeouts else STORE_TIMEOUT
    except ValueError:
        raise InvalidArgumentError("store_timeout", timeouts[0], expected="a number") from None
