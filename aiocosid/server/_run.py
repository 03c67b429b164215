"""Runs the server: its sockets, its processes, and its end.

SIGTERM and SIGINT end it in an orderly way: it reports that it is not ready, continues to serve for
``drain`` seconds, closes its listeners, answers the requests that have arrived, and releases
machine ids and unused ids.  A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from .._life.clock import SYSTEM_CLOCK
from ..errors import CosIdError, InvalidArgumentError
from ..provider import configure
from ..provider.settings import address_of, configured_stores, expiry_warnings_of
from ..stores.inspection import parts_of
from ._app import App
from ._hosts import Hosts
from ._listen import CLOSE, EitherProtocol, Patience
from ._problems import Problem
from ._processes import supervise
from ._reload import read_again, tokens_of
from ._service import Limits
from ._sheets import Sheets
from ._sockets import bound, refusal
from ._tls import TlsServer, certificate_end_ms, context_of
from ._tokens import EVERY

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from starlette.routing import BaseRoute

    from ..abc import Store
    from ..provider.settings import Settings
    from ._service import Service
    from ._sockets import Listener
    from ._tokens import TokenScope

    Load = Callable[[], Settings]
    Make = Callable[[Settings], App]

__all__ = ("app_of", "run", "run_app")

logger = logging.getLogger("aiocosid.server")

HTTP_DIALECTS: Final = ("cosid", "leaf", "tinyid")
LOOKS: Final = 4  # checks of waiting connections within their timeout
HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
"""Makes the server reload its tokens, certificates and names; Windows has no such signal."""

TICKS: Final = 10  # of uvicorn per second


def run(settings: Settings, load: Load | None = None) -> None:
    """Run the server that settings describe, in this process or several, until a signal ends it.

    It writes its log to standard error.  On SIGHUP it reloads tokens, certificates and names.

    Args:
        settings: as `load_settings` returns them.
        load: loads the settings again.  Each of several processes calls it, so it must be possible
            to pickle it.  Without it, SIGHUP does nothing.

    Raises:
        InvalidSettingsError: the settings are wrong.
        InvalidArgumentError: an address cannot be used; other machines can reach it and there are
            no tokens; a certificate cannot be read; or several processes would use a store that
            exists in one process only.
        CosIdError: the generators cannot be opened.
        KeyboardInterrupt: SIGINT has ended it in an orderly way.
    """
    run_app(settings, app_of, load)


def run_app(settings: Settings, make: Make, load: Load | None = None) -> None:
    """Run an application that settings describe; see `run`."""
    plan, server = _Plan(make, settings, load), settings.server
    _check_processes(settings)
    context_of(settings)
    _begin_log()
    _allow_connections()
    with ExitStack() as stack:
        if HANGUP is not None:
            stack.callback(signal.signal, HANGUP, signal.signal(HANGUP, signal.SIG_IGN))
        found = bound(map(address_of, server.listen), unix_mode=int(server.unix_mode, 8))
        for each in found:
            stack.callback(each.close)
        if not server.tokens and not server.insecure:
            _check_private(found)
        sockets = [each.socket for each in found]
        on_ready = partial(_tell, settings, found)
        if server.workers == 1:
            _run(plan, sockets, on_ready=on_ready)
        else:
            folder = stack.enter_context(TemporaryDirectory(prefix="aiocosid-"))
            work = partial(_work, replace(plan, sheets=folder), sockets)
            supervise(
                work,
                server.workers,
                on_ready=on_ready,
                on_none=refusal(sockets),
                reload=HANGUP,
            )


def app_of(
    settings: Settings,
    over: Callable[[Store], Store] | None = None,
    *,
    offers: Iterable[TokenScope] = EVERY,
) -> App:
    """Return the application that settings describe; nothing is opened.

    Args:
        settings: as `load_settings` returns them.
        over: returns the store of segments and machine ids, over the store at the top of the
            settings; by default, that store itself.
        offers: the scopes that the application offers at all, whatever a token allows.

    Raises:
        InvalidSettingsError: the settings are wrong.
        InvalidArgumentError: there is no store at the top of the settings, and ``over`` is given.
    """
    server = settings.server
    resp = server.resp
    commands: Any = None
    if resp is not None:
        found = import_module(".dialects.resp", __package__)
        commands = found.commands(**resp.model_dump())
    provider, store = configure(settings), None
    provider.open_in_part()
    if over is not None:
        if provider.store is None:
            raise InvalidArgumentError("store", None, "is required at the top of the settings")
        store = over(provider.store)
    return App(
        provider,
        store=store,
        namespace=settings.namespace,
        tokens=tokens_of(server),
        limits=Limits(**server.limits.model_dump()),
        create=server.create,
        unix_tokens=server.unix_tokens,
        offers=offers,
        hosts=server.hosts,
        receipt_key=server.receipt_key or "",
        dialects=[*_dialects(settings)],
        resp=commands,
    )


def _dialects(settings: Settings) -> Iterator[Callable[[Service], Sequence[BaseRoute]]]:
    for name in HTTP_DIALECTS:
        found = getattr(settings.server, name)
        if found is not None:
            module = import_module(f".dialects.{name}", __package__)
            yield partial(module.routes, **found.model_dump())


def _check_processes(settings: Settings) -> None:
    """Raise if several processes would issue the same ids."""
    count = settings.server.workers
    if count == 1:
        return
    sections: list[Any] = [settings.share, *settings.generators.values()]
    sections += [getattr(each, "inner", None) for each in sections]
    kinds = {each.kind for each in sections if each is not None}
    stores = [url for url, *_ in configured_stores(settings)]
    if "counter" in kinds or any(url.startswith("memory:") for url in stores):
        rule = "must be 1: a store or a counter in memory exists in one process only"
        raise InvalidArgumentError("workers", count, rule)


def _check_private(found: Sequence[Listener]) -> None:
    for each in found:
        if each.is_public:
            rule = (
                "must be an address that only this machine reaches, as the settings have no "
                "tokens; make one with `aiocosid token new --name NAME`, or allow it with "
                "--insecure"
            )
            raise InvalidArgumentError("listen", each.name, rule)


def _tell(settings: Settings, found: Sequence[Listener]) -> None:
    """Log which addresses are served."""
    server = settings.server
    _warn_of_expiry(settings)
    if not server.tokens and any(each.is_public for each in found):
        logger.warning("other machines can reach this server, and need no token")
    names = ", ".join(each.name for each in found)
    many = f" with {server.workers} processes" if server.workers > 1 else ""
    logger.info("listening on %s%s", names, many)


def _warn_of_expiry(settings: Settings) -> None:
    for path, what in expiry_warnings_of(settings.server, SYSTEM_CLOCK.now_ms()):
        logger.warning("%s %s", ".".join(path), what)


async def _warn_of_disposable(service: Service) -> None:
    """Warn about stores for tests, in which dropped tables are created again."""
    with suppress(Problem):  # there is no store
        for store in parts_of(service.store):
            with suppress(CosIdError):
                if (await store.ask_server()).is_disposable:
                    logger.warning("%r is a store for tests; in production ids may repeat", store)


def _allow_connections() -> None:
    """Raise the limit of open files as far as the system allows; the usual limit is 1024."""
    if find_spec("resource") is None:  # on Windows
        return
    resource: Any = import_module("resource")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # where "unlimited" is not allowed
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _begin_log() -> None:
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=logging.WARNING, format=form, force=True)
    logger.setLevel(logging.INFO)
    # Uvicorn's warnings are off, because each connection that sends garbage would log one.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


# One process.


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan of what a process serves.

    Attributes:
        make: creates the application.
        settings: the settings of the application.
        load: loads the settings again; None to keep them.
        sheets: the folder in which several processes share their figures; or empty.
    """

    make: Make
    settings: Settings
    load: Load | None
    sheets: str = ""


def _work(
    plan: _Plan,
    sockets: Sequence[socket.socket],
    index: int,
    parent: Any,  # noqa: ANN401 - a connection of multiprocessing
) -> None:
    """Serve in one of several processes."""
    _begin_log()
    try:
        _run(
            replace(plan, settings=_numbered(plan.settings, index)),
            sockets,
            on_ready=partial(parent.send, None),
            parent=os.getppid(),
        )
    except CosIdError as error:
        logger.error("process %d: %s", os.getpid(), error)  # noqa: TRY400 - its message says it
        parent.send(error)
        raise SystemExit(1) from None


def _numbered(settings: Settings, index: int) -> Settings:
    """Return settings that give each process its own machine id, where ids are set manually."""
    machine = settings.machine
    if machine.worker_bits is None or machine.worker is not None:
        return settings
    numbered = machine.model_copy(update={"worker": index})
    return settings.model_copy(update={"machine": numbered})


def _run(
    plan: _Plan,
    sockets: Sequence[socket.socket],
    *,
    on_ready: Callable[[], None],
    parent: int | None = None,
) -> None:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        number = runner.run(_serve(plan, sockets, on_ready, parent))
    if number == signal.SIGINT:
        raise KeyboardInterrupt


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return a function that creates uvloop's loop; None where uvloop is missing, as on Windows."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory


async def _serve(
    plan: _Plan,
    sockets: Sequence[socket.socket],
    on_ready: Callable[[], None],
    parent: int | None,
) -> int:
    """Serve until a signal; return its number."""
    options, app = plan.settings.server, plan.make(plan.settings)
    if plan.sheets:
        app.service.sheets = Sheets(plan.sheets)
    config = uvicorn.Config(
        app,
        http=EitherProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=ceil(options.limits.header_timeout),
        timeout_graceful_shutdown=ceil(options.graceful_timeout),
    )
    async with app.running():
        await _warn_of_disposable(app.service)
        server = _Server(config, app.service, plan, on_ready, parent)
        await server.serve([*sockets])
    logger.info("process %d has ended", os.getpid())
    return server.signal


class _Server(uvicorn.Server):
    """uvicorn's server, with a shutdown that load balancers notice, and limits on waiting clients.

    Attributes:
        signal: the signal that ends it; 0 before that.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        plan: _Plan,
        on_ready: Callable[[], None],
        parent: int | None,
    ) -> None:
        super().__init__(config)
        self.signal = 0
        self._service = service
        service.certificate_ms = certificate_end_ms(plan.settings)
        service.meters.connections = self.server_state.connections
        self._settings = plan.settings
        self._load = plan.load
        self._reading: asyncio.Task[None] | None = None
        self._tls = context_of(plan.settings)
        self._on_ready = on_ready
        self._parent = parent
        self._ends_at = 0.0
        timeout = service.limits.header_timeout
        self._patience = Patience(self.server_state.connections, timeout)
        self._ticks = max(1, int(timeout * TICKS / LOOKS))
        self._ticks_left = self._ticks

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen; TLS is for TCP only."""
        loop = asyncio.get_running_loop()
        make = partial(EitherProtocol, self.config, self.server_state, app_state={}, _loop=loop)
        self.servers: list[Any] = []
        backlog, limits = self.config.backlog, self._service.limits
        for each in sockets or []:
            if self._tls is None or isinstance(each.getsockname(), str | bytes):
                self.servers.append(await loop.create_server(make, sock=each, backlog=backlog))
                continue
            server = TlsServer(
                each,
                make,
                self._tls,
                connections=self.server_state.connections,
                at_most=limits.connections,
                timeout=limits.header_timeout,
            )
            server.start(backlog)
            self.servers.append(server)
        self.started = True
        if self._load is not None and HANGUP is not None:
            loop.add_signal_handler(HANGUP, self._begin_reading, self._load)
        self._on_ready()

    def _begin_reading(self, load: Load) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_again(load))

    async def _read_again(self, load: Load) -> None:
        """Reload the tokens, certificates and names; keep all old ones if a new one is wrong."""
        try:
            found = await asyncio.to_thread(read_again, self._settings, load)
        except CosIdError as error:
            logger.error("process %d keeps its tokens and certificates: %s", os.getpid(), error)  # noqa: TRY400 - its message says it
            return
        self._settings, server = found, found.server
        self._service.tokens = self._service.tokens.replaced(tokens_of(server))
        self._service.hosts = Hosts(server.hosts)
        self._service.certificate_ms = certificate_end_ms(found)
        context = context_of(found)
        for each in self.servers:
            if isinstance(each, TlsServer) and context is not None:
                each.context = context
        await asyncio.to_thread(_warn_of_expiry, found)
        logger.info("process %d has reloaded its %d tokens", os.getpid(), len(server.tokens))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown; a second signal ends the server at once.

        In one of several processes the parent's message decides, which may arrive in addition to a
        signal to the whole process group.
        """
        del frame
        if self._parent is not None and (self.signal or sig == signal.SIGINT):
            return
        if self.signal:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self._begin_end(sig)

    def _begin_end(self, number: int) -> None:
        self.signal = number
        drain = self._settings.server.drain
        logger.info("process %d shuts down in %g s", os.getpid(), drain)
        self._ends_at = SYSTEM_CLOCK.monotonic() + drain
        self._service.is_draining = True
        # This makes clients with kept connections connect elsewhere.
        self.config.encoded_headers.append(CLOSE)
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]

    async def on_tick(self, counter: int) -> bool:
        """Check the connections and the shutdown, ten times a second."""
        now = SYSTEM_CLOCK.monotonic()
        if self._parent is not None and not self.signal and os.getppid() != self._parent:
            logger.error("process %d: its parent has gone", os.getpid())
            self._begin_end(signal.SIGTERM)
        if self.signal and now >= self._ends_at:
            self.should_exit = True
        self._ticks_left -= 1
        if self._ticks_left == 0:
            self._ticks_left = self._ticks
            await self._patience.close_overdue(now)
        return await super().on_tick(counter)
