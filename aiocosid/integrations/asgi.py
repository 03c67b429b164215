"""Statistics, health and error answers as ASGI applications, which need no framework.

Mount statistics and health only for operators.  Messages of store errors may contain hosts and
users, so do not publish the statistics; the health report contains only the errors' classes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import CosIdError, NotOpenError, WouldBlock, WrongLoopError
from ..provider.default import default_provider
from ..segment import GroupedSegmentId
from ..segment.generator import SegmentGenerator
from .failures import PROBLEM_JSON, FailureLog, answer_to
from .source import STATE_KEY
from .state import GeneratorState, inmost

if TYPE_CHECKING:
    from ..abc import AnyGenerator, Provider

__all__ = ("ErrorMiddleware", "Health", "HealthApp", "StatisticsApp", "check_health")

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_Application: TypeAlias = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

_UP, _DEGRADED, _DOWN = "up", "degraded", "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether ids can be issued now.

    Attributes:
        generators: the state of each generator, by name, ready for JSON: its ``status`` (``up``,
            ``degraded`` or ``down``), the class of its last ``error``, and, where it has them, the
            buffered ids ``remaining`` and the ``secondsLeft`` that they last, or the ``machineId``
            and the ``secondsLeft`` of its lease; and the seconds of ``quarantineLeft`` while the
            store grants no machine ids, null if that does not end by itself.
        error: the class of the error if there is no open provider; otherwise None.
    """

    generators: dict[str, dict[str, object]]
    error: str | None = None

    @property
    def healthy(self) -> bool:
        """Whether every generator can issue ids."""
        return self.error is None and not self._having(_DOWN)

    @property
    def degraded(self) -> list[str]:
        """The names of the generators that issue ids although their store fails."""
        return self._having(_DEGRADED)

    def _having(self, status: str) -> list[str]:
        return [name for name, each in self.generators.items() if each["status"] == status]

    def as_tree(self) -> dict[str, object]:
        """Return the report ready for JSON."""
        tree: dict[str, object] = {"status": _UP if self.healthy else _DOWN}
        if self.error is not None:
            tree["error"] = self.error
        if self.degraded:
            tree["degraded"] = self.degraded
        return {**tree, "generators": self.generators}


def check_health(provider: Provider | None = None) -> Health:
    """Return whether a provider's generators can issue ids now; never waits.

    A generator is down if it has ended, if its machine id's lease has expired, or if its store
    fails and no id is buffered.  It is degraded if the store fails and the remaining ids do not
    last for half of the chain's ``endurance``; other kinds are degraded as soon as the store fails.
    It knows of a failing store only from calls that generators make, and when ids run out it has
    the store called again, in the background, so that it sees when the store is back.
    A generator that does not count buffered ids, for example a `SnowflakeId`, is asked for an id,
    which becomes a gap.

    Call it on the generators' event loop; in FastAPI, from an ``async def`` route.

    Args:
        provider: the provider; by default the process's default provider.

    Raises:
        WrongLoopError: it was called from another loop or thread.
    """
    try:
        found = provider if provider is not None else default_provider()
    except NotOpenError as error:
        return Health(generators={}, error=_name(error))
    return Health(generators={name: _look_at(found[name]) for name in found})


def _look_at(generator: AnyGenerator) -> dict[str, object]:
    report = GeneratorState(generator.statistics())
    error, lease, chain = report.error, report.lease, report.chain
    known: dict[str, object] = {}
    lasts = False
    if report.remaining is not None:
        known["remaining"] = report.remaining
    if chain is not None:
        rest = chain.seconds_left
        lasts = rest is not None and 0 < chain.endurance / 2 <= rest
        known["secondsLeft"] = None if rest is None else round(rest, 3)
    if lease is not None:
        known |= {"machineId": lease.machine_id, "secondsLeft": _rounded(lease.seconds_left)}
        if lease.quarantine_left > 0:
            known["quarantineLeft"] = _rounded(lease.quarantine_left)
    refused = report.ended if report.tells_end else _refusal(generator)
    is_dry = error is not None and report.remaining == 0
    core = inmost(generator)
    if is_dry and not refused and isinstance(core, SegmentGenerator | GroupedSegmentId):
        core.probe()  # a balancer sends no callers, who would notice that the store is back
    is_down = refused or is_dry or not report.has_machine_id
    status = _DOWN if is_down else _DEGRADED if error and not lasts else _UP
    return {"status": status, "error": _name(refused or error), **known}


def _rounded(seconds: float) -> float | None:
    return round(seconds, 3) if isfinite(seconds) else None


def _refusal(generator: AnyGenerator) -> CosIdError | None:
    """Return why a generator issues no id; None if it just must be awaited."""
    try:
        generator.next_id_nowait()
    except WouldBlock:
        return None
    except WrongLoopError:
        raise  # the caller's mistake, which says nothing about the generator
    except CosIdError as error:
        return error
    return None


def _name(error: Exception | None) -> str | None:
    return None if error is None else type(error).__name__


class _ReadOnlyApp:
    """Answers GET and HEAD with JSON.

    Args:
        provider: the provider whose generators are shown; by default the provider of the
            surrounding application's lifespan, or else the process's default provider.
    """

    def __init__(self, provider: Provider | None = None) -> None:
        self._provider = provider

    async def __call__(self, scope: _Scope, _receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            raise NotImplementedError(f"{type(self).__name__} has no {scope['type']}")
        if scope["method"] not in {"GET", "HEAD"}:
            await _reply(
                scope, send, HTTPStatus.METHOD_NOT_ALLOWED, {"detail": "only GET and HEAD"}
            )
            return
        provider = self._provider
        if provider is None:  # an empty provider is falsy
            provider = scope.get("state", {}).get(STATE_KEY)
        await _reply(scope, send, *self._answer(_path(scope), provider))

    def _answer(self, path: str, provider: Provider | None) -> tuple[int, object]:
        """Return status and body."""
        raise NotImplementedError


class StatisticsApp(_ReadOnlyApp):
    """Shows the generators' statistics in the format of CosId's actuator.

    ``GET /`` returns all of them by name, and ``GET /{name}`` returns one; a slash in a name may be
    written as such or as ``%2F``.  An unknown name is answered with 404, and a provider that is not
    open with 503.
    """

    def _answer(self, path: str, provider: Provider | None) -> tuple[int, object]:
        try:
            found = provider if provider is not None else default_provider()
        except NotOpenError as error:
            return 503, {"detail": str(error)}
        if path in {"", "/"}:
            return 200, found.statistics()
        whole = path.removeprefix("/")
        name = whole.removesuffix("/")  # Litestar adds a slash to paths below a mount
        for each in (whole, name):
            with suppress(KeyError):
                return 200, found[each].statistics().as_tree()
        return 404, {"detail": f"no generator is named {name!r}"}


class HealthApp(_ReadOnlyApp):
    """Answers 200 if ids can be issued and 503 otherwise, at any path; see `check_health`."""

    def _answer(
        self,
        path: str,  # noqa: ARG002 - it answers at any path
        provider: Provider | None,
    ) -> tuple[int, object]:
        health = check_health(provider)
        return (200 if health.healthy else 503), health.as_tree()


def _path(scope: _Scope) -> str:
    """Return the path below the mount point, as the server decoded it."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path


async def _reply(scope: _Scope, send: _Send, status: int, body: object) -> None:
    text = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(text)),
        (b"cache-control", b"no-store"),
    ]
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else text})


class ErrorMiddleware:
    """An ASGI middleware that answers requests which fail with a `CosIdError`.

    It is for frameworks that have no module of their own here, and does the same as
    `aiocosid.integrations.starlette.handle_errors`: a ``retryable`` error is answered with 503 and
    ``Retry-After``, any other `CosIdError` with 500, and the logger ``aiocosid.requests`` gets at
    most one line per second for each cause.  An error after the answer has begun is raised again.

    Attributes:
        app: the wrapped application.
    """

    def __init__(self, app: _Application) -> None:
        self.app: _Application = app
        self._failures = FailureLog()

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Serve one connection."""
        has_begun = scope["type"] != "http"

        async def begin(message: MutableMapping[str, Any]) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.app(scope, receive, send if has_begun else begin)
        except CosIdError as error:
            if has_begun:
                raise
            found = answer_to(error)
            self._failures.note(error, f"a request was answered with {found.status}")
            headers = {**found.headers, "content-type": PROBLEM_JSON}
            await send(
                {
                    "type": "http.response.start",
                    "status": found.status,
                    "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
                }
            )
            body = b"" if scope["method"] == "HEAD" else found.body
            await send({"type": "http.response.body", "body": body})
