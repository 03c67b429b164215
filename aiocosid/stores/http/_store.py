"""One CosId proxy with all its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...abc import (
    DEFAULT_GUARD_INTERVAL,
    DEFAULT_NAMESPACE,
    DEFAULT_SAFE_GUARD,
    DEFAULT_STEP,
    Store,
)
from ...errors import UnsupportedByStoreError
from ._errors import STORE
from ._link import BorrowedLink, OwnedLink
from ._machine import HttpMachineIdDistributor
from ._segment import HttpIdSegmentDistributor

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

    from ...abc import Counter, InstanceId
    from ._link import Link

__all__ = ("HttpStore",)


class HttpStore(Store):
    """Counters and machine ids behind one CosId proxy.

    The proxy hands out, and tells nothing: who wants to look at what lies in its store, or to
    change it, does so there.
    """

    __slots__ = ("_link",)

    def __init__(self, client: httpx.AsyncClient) -> None:
        """Work on your own client, which stays yours to close; nothing is sent yet.

        Args:
            client: as for `HttpIdSegmentDistributor`.

        Raises:
            InvalidArgumentError: it is another thing, or has no ``base_url``.
        """
        self._link: Link = BorrowedLink(client)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Work on connections of its own, opened on first use and closed by `aclose`.

        They have 1 s to be connected and 1.5 s for an answer, and heed no variable of the
        environment such as ``HTTP_PROXY``; pass a client of your own for anything else.

        Args:
            url: ``http://host:8688`` or ``https://``, before which ``cosid+`` may stand; with a
                user and a password for basic authentication, and a path if the proxy has one.

        Raises:
            InvalidArgumentError: the URL is malformed.
        """
        made = cls.__new__(cls)
        made._link = OwnedLink(url)
        return made

    def __repr__(self) -> str:
        """Name the proxy, without credentials."""
        return f"<{type(self).__name__} {self._link}>"

    def segment_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> HttpIdSegmentDistributor:
        """Return a distributor on this store's connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return HttpIdSegmentDistributor(
            self._link, namespace=namespace, name=name, offset=offset, step=step
        )

    def machine_id_distributor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        instance_id: InstanceId | str | None = None,
        safe_guard: float = DEFAULT_SAFE_GUARD,
        interval: float = DEFAULT_GUARD_INTERVAL,
    ) -> HttpMachineIdDistributor:
        """Return a distributor of machine ids on this store's connections; nothing is sent yet.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        return HttpMachineIdDistributor(
            self._link,
            namespace=namespace,
            instance_id=instance_id,
            safe_guard=safe_guard,
            interval=interval,
        )

    async def create_schema(self) -> None:
        """Do nothing: the proxy's store has, or makes, what it needs."""

    async def counters(self, *, namespace: str | None = None) -> Sequence[Counter]:  # noqa: ARG002
        """Refuse: the protocol has no such call.

        Raises:
            UnsupportedByStoreError: always.
        """
        raise _no_way_to("list counters")

    async def set_floor(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,  # noqa: ARG002
        name: str,  # noqa: ARG002
        above: int,  # noqa: ARG002
    ) -> Counter:
        """Refuse: the protocol has no such call.

        Raises:
            UnsupportedByStoreError: always.
        """
        raise _no_way_to("raise a counter")

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        await self._link.aclose()

    def _has_no_machine_ids(self) -> UnsupportedByStoreError:
        return _no_way_to("look at machine ids or to change them")


def _no_way_to(do: str) -> UnsupportedByStoreError:
    return UnsupportedByStoreError(
        STORE, f"CosId's protocol has no way to {do}; use the store behind it"
    )
