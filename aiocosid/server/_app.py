"""The server as one ASGI application."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.routing import Router

from .._life.clock import SYSTEM_CLOCK
from ..abc import DEFAULT_NAMESPACE
from ..errors import CosIdError
from . import _dashboard, _health, _metrics, _store_api, _v1
from ._http import Sending, answer_of, send_answer
from ._overview import remember
from ._problems import FAILURES, Problem, problem_of
from ._routes import Direct, routes_of
from ._service import Service
from ._tokens import EVERY

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Callable,
        Iterable,
        Mapping,
        Sequence,
    )

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from ..abc import Store
    from ..integrations.source import Source
    from ._resp import Adder, Command
    from ._service import Limits
    from ._tokens import Token, TokenScope

    Dialect = Callable[[Service], Sequence[BaseRoute]]

__all__ = ("App",)

BUSIEST: Final = 2
"""How many native routes come before those of the dialects: ids and segments."""

BUG: Final = Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "bug")


class App:
    """The id service as an ASGI application, for any ASGI server.

    Attributes:
        service: the service that all protocols share.
        resp: the RESP commands; None for HTTP only.
    """

    def __init__(
        self,
        provider: Source,
        *,
        store: Store | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        tokens: Iterable[Token] = (),
        limits: Limits | None = None,
        create: bool = False,
        unix_tokens: bool = True,
        offers: Iterable[TokenScope] = EVERY,
        hosts: Iterable[str] = (),
        receipt_key: str = "",
        dialects: Iterable[Dialect] = (),
        resp: Mapping[bytes, Command | Adder] | None = None,
        dashboard: bool = True,
    ) -> None:
        """Describe the service; nothing is opened yet.

        Args:
            provider: provides the generators: a provider from `connect` or `configure`, or a
                function that creates one.  The application's lifespan opens and closes it.
            store: the store of segments and machine ids, also opened and closed by the lifespan; by
                default the provider's store.
            namespace: the namespace of counters that are named without one.
            tokens: which tokens allow what; without tokens, every caller may do everything.
            limits: the limits of one request.
            create: whether a request for an unknown name creates a segment chain on the store.
            unix_tokens: whether callers on Unix sockets need a token if others do.  Set it to False
                only if the socket is for its owner alone: a proxy in front of it would then need no
                token.
            offers: the scopes that the server offers at all, whatever a token allows; a broker
                offers no ``admin``.
            hosts: the names of the server's hosts; ``*`` matches any characters.  A request without
                a token may name these, ``localhost`` or an address.  Unix sockets do not check
                this.
            receipt_key: a secret that all servers of the store share.  With it, clients that show a
                token keep their machine ids after the store has lost them; without it, they must
                wait.
            dialects: routes for other systems' protocols, for example from `dialects.leaf.routes`.
            resp: the RESP commands from `dialects.resp.commands`; None to speak HTTP only.  RESP
                needs ``aiocosid serve``, whose sockets speak both protocols.
            dashboard: whether ``/`` and ``/dashboard`` show the operator's page.
        """
        self.service: Service = Service(
            provider,
            store=store,
            namespace=namespace,
            tokens=tokens,
            limits=limits,
            create=create,
            unix_tokens=unix_tokens,
            offers=offers,
            hosts=hosts,
            receipt_key=receipt_key,
        )
        self._has_dashboard = dashboard
        self.resp: Mapping[bytes, Command | Adder] | None = resp
        # Routes are tried one after the other, so the busiest come first.
        native = routes_of(
            self.service,
            (
                *_v1.OPERATIONS,
                *_store_api.OPERATIONS,
                *_metrics.OPERATIONS,
                *_health.OPERATIONS,
                *(_dashboard.operations(self.service) if dashboard else ()),
            ),
        )
        spoken = {_name_of(dialect): dialect(self.service) for dialect in dialects}
        named: list[tuple[str, Sequence[Any]]] = [*spoken.items(), ("native", native)]
        self.service.meters.routes = {
            each.endpoint: (name, each.path) for name, found in named for each in found
        }
        theirs = filter(None, chain.from_iterable(zip_longest(*spoken.values())))
        routes = [*native[:BUSIEST], *theirs, *native[BUSIEST:]]
        self._direct = Direct(routes)
        # A redirect could take an id at a path other than the requested one.
        self._app: Any = Router(routes, redirect_slashes=False, lifespan=self.running)

    def __repr__(self) -> str:
        """Show the service."""
        return f"<{type(self).__name__} of {self.service!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of a connection, or the application's lifespan."""
        scope["app"] = self  # makes the framework raise its refusals
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sending = Sending(send, is_head=scope["method"] == "HEAD")
        began, problem = SYSTEM_CLOCK.monotonic(), None
        try:
            await (self._direct.find(scope) or self._app)(scope, receive, sending)
        except Problem as error:
            problem = error
        except CosIdError as error:
            problem = problem_of(error)
        except HTTPException as error:  # an unknown path or a wrong method
            kind = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
            problem = Problem(error.status_code, kind, headers=dict(error.headers or {}))
        except Exception as error:  # noqa: BLE001 - any bug
            # The answer contains no details of the failure; they are in the log.
            FAILURES.note(error, "a request has failed", trace=True)
            problem = BUG
        if problem is not None and not sending.status:
            await send_answer(sending, answer_of(problem))
        if sending.status:
            took = SYSTEM_CLOCK.monotonic() - began
            self.service.meters.note(scope, sending.status, took)

    @asynccontextmanager
    async def running(self, _app: object = None) -> AsyncGenerator[None]:
        """Keep the service open; an ASGI server does this through the lifespan protocol.

        Raises:
            CosIdError: as for opening the provider.
        """
        service = self.service
        async with AsyncExitStack() as stack:
            await service.open(stack)
            if self._has_dashboard:
                stack.callback(service.tasks.start(partial(remember, service)).cancel)
            if service.sheets is not None:
                writing = partial(service.sheets.write_on, partial(_metrics.known_to, service))
                stack.callback(service.tasks.start(writing).cancel)
            yield


def _name_of(dialect: Dialect) -> str:
    """Return the name of the module that defines a dialect's routes."""
    module: str = getattr(dialect, "func", dialect).__module__
    return module.rpartition(".")[2]
