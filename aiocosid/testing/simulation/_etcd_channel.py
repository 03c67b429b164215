"""Channels of grpc's that lead to members of a simulated etcd."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...stores.etcd._driver import grpc
from ...stores.etcd._link import OwnedLink
from ._errors import RefusedError
from ._link import _expire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ...stores.etcd._url import Target
    from ._etcd import SimulatedEtcd
    from ._link import Link
    from ._node import Node

__all__ = ("open_link",)


def open_link(etcd: SimulatedEtcd, node: Node, link: Link, members: Sequence[int]) -> OwnedLink:
    """Return what leads to members as a URL does, in the order in which it names them."""

    def opened(_: Target, host: str) -> _Channel:
        return _Channel(etcd, int(host.partition(":")[0]), node, link)

    url = f"etcd://{','.join(map(str, members))}"
    return OwnedLink(url, opener=opened, clock=node.clock)


class _Channel:
    """A channel to one member, as the stubs that are generated for etcd need it."""

    def __init__(self, etcd: SimulatedEtcd, member: int, node: Node, link: Link) -> None:
        self._etcd = etcd
        self._member = member
        self._node = node
        self._link = link

    def unary_unary(self, path: str, **_: Any) -> Callable[..., Awaitable[Any]]:  # noqa: ANN401 - the driver's
        return partial(self._ask, path.rpartition("/")[2])

    def stream_stream(self, path: str, **_: Any) -> Callable[..., _Stream]:  # noqa: ANN401 - the driver's
        return partial(_Stream, self.unary_unary(path))

    async def close(self, _: float | None = None) -> None:
        """Calls that are under way end by themselves."""

    async def _ask(self, call: str, request: Any, *, timeout: float, **_: object) -> Any:  # noqa: ANN401, ASYNC109 - the driver's
        node, process = self._node, self._node._current()

        async def operation() -> _Told:
            try:
                return _Told(await self._etcd.serve(self._member, process, call, request))
            except RefusedError as error:
                raise _failure(error.code, str(error)) from None

        late = partial(_failure, "DEADLINE_EXCEEDED")
        broken = partial(_failure, "UNAVAILABLE")
        reply = self._link.post(f"{call}{_about(request)}", operation, late=late, broken=broken)
        timer = node.world.loop.call_later(node._virtual(timeout), _expire, reply, late, timeout)
        reply.add_done_callback(lambda _: timer.cancel())
        return cast("_Told", await reply).message


class _Stream:
    """A call on which several messages may go; of ours one."""

    def __init__(self, ask: Callable[..., Awaitable[Any]], **how: object) -> None:
        self._ask = partial(ask, **how)
        self._request: object = None

    async def write(self, request: object) -> None:
        self._request = request

    async def read(self) -> Any:  # noqa: ANN401 - the driver's
        return await self._ask(self._request)

    def cancel(self) -> None:
        """It has ended."""


class _Told:
    """A reply, and what the trace says of it."""

    def __init__(self, message: Any) -> None:  # noqa: ANN401 - the driver's
        self.message = message

    def __str__(self) -> str:
        fails = "" if getattr(self.message, "succeeded", True) else "not done, "
        return f"{fails}revision {self.message.header.revision}"


def _about(request: Any) -> str:  # noqa: ANN401 - the driver's
    for each in getattr(request, "success", ())[:1]:
        kind = each.WhichOneof("request")
        key = getattr(each, kind).key.decode(errors="replace")
        return f" {kind.removeprefix('request_')} {key}"
    return ""


def _failure(code: str, text: str) -> Exception:
    nothing = grpc.aio.Metadata()
    return cast("Exception", grpc.aio.AioRpcError(grpc.StatusCode[code], nothing, nothing, text))
