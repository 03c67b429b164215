"""Hands out segments from a counter behind a CosId proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ...abc import DEFAULT_NAMESPACE, DEFAULT_STEP, MAX_ID, IdSegmentDistributor
from ...errors import CorruptCounterError, IdOverflowError
from .._arguments import check_step
from .._watermark import HighWater
from ._errors import STORE, refusal, unexpected, value_of
from ._link import BorrowedLink, Link, OwnedLink
from ._url import path_of

if TYPE_CHECKING:
    import httpx

    from ._errors import Answer

__all__ = ("HttpIdSegmentDistributor",)


class HttpIdSegmentDistributor(IdSegmentDistributor):
    """A counter behind a CosId proxy, which its Java clients may use at the same time.

    A range is one ``PATCH /segments/{namespace}/{name}``, sent once: when its answer is lost, so is
    the range.  Before the first one the counter is created by a ``POST``, as CosId's client does,
    which changes nothing if it exists.
    """

    __slots__ = ("_is_created", "_link", "_owns_link", "_path", "_water")

    store = STORE

    def __init__(
        self,
        client: httpx.AsyncClient | Link,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> None:
        """Describe a counter; nothing is sent yet.

        Args:
            client: your own ``httpx.AsyncClient``, whose ``base_url`` is the proxy's.  It stays
                yours to close, and its timeouts apply; it must not send a request twice after it
                was connected.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.

        Raises:
            InvalidArgumentError: an argument is outside its range, or the client is another thing.
        """
        super().__init__(namespace=namespace, name=name, offset=offset, step=step)
        self._link = client if isinstance(client, Link) else BorrowedLink(client)
        self._owns_link = False
        self._is_created = False
        self._path = path_of(namespace, name)
        self._water = HighWater()

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        name: str,
        offset: int = 0,
        step: int = DEFAULT_STEP,
    ) -> Self:
        """Describe a counter on connections of its own, opened on first use and closed by `aclose`.

        Args:
            url: as for `HttpStore.from_url`.
            namespace: the counter's namespace.
            name: the counter's name.
            offset: where a new counter starts.
            step: ids per segment.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        made = cls(OwnedLink(url), namespace=namespace, name=name, offset=offset, step=step)
        made._owns_link = True
        return made

    async def next_max_id(self, step: int) -> int:
        """Advance the counter; see `aiocosid.abc.IdSegmentDistributor.next_max_id`.

        A cancelled call may have taken effect, or take it yet; its answer is dropped.

        Raises:
            InvalidArgumentError: ``step`` is no integer, or below 1; nothing was sent.
            IdOverflowError: the counter would pass 2^63-1; nothing was sent.
            CorruptCounterError: the counter is negative, or lower than the step.
            StoreUnavailableError: the proxy cannot be reached, is silent, or fails, as it does when
                its store does, or refuses a step for whatever reason of its own.
            StoreAuthenticationError: what stands before the proxy rejects us.
            StoreError: what answers is no CosId proxy.
            StoreRolledBackError: the counter is lower than it was.
            ForkedError: the connections are the parent's.
        """
        check_step(step)
        self._water.ensure_own(repr(self))
        if (self._water.sent() or 0) + step > MAX_ID:
            raise IdOverflowError(self.namespaced_name, limit=MAX_ID)
        if not self._is_created:
            await self._create()
        sent = self._water.sent()
        answer = await self._link.ask("PATCH", f"/segments{self._path}", {"step": str(step)})
        if not answer.is_ok:
            # A server before 3.2.1 that was started anew has forgotten the counter's name.
            self._is_created = False
            raise refusal(answer)
        return self._water.check(self, self._read(answer, step), step=step, sent=sent)

    async def _create(self) -> None:
        about = {"offset": str(self.offset), "step": str(self.step)}
        answer = await self._link.ask("POST", f"/segments/distributor{self._path}", about)
        if not answer.is_ok:
            raise refusal(answer)
        self._is_created = True

    def _read(self, answer: Answer, step: int) -> int:
        expected = "an integer"
        value = value_of(answer, expected)
        if type(value) is not int or value > MAX_ID:  # True is an int to isinstance
            raise unexpected(answer, expected)
        if value < step:
            raise CorruptCounterError(STORE, counter=self.namespaced_name, found=str(value - step))
        return value

    async def aopen(self) -> None:
        """Get ready in this process; in a forked child with new connections.

        Raises:
            ForkedError: the client was passed in, and is the parent's.
        """
        self._link.aopen()
        self._water.adopt()

    async def aclose(self) -> None:
        """Close connections made from a URL; a client that was passed in stays open."""
        if self._owns_link:
            await self._link.aclose()
