"""Translates the driver's errors, and a proxy's answers, into aiocosid's errors."""

from __future__ import annotations

import json
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from ...errors import (
    CosIdError,
    MissingExtraError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from ...errors._general import MOST_SHOWN
from .._tls import untrusted

try:
    import httpx
except ModuleNotFoundError as _exc:
    raise MissingExtraError("httpx", extra="http") from _exc

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ("CLOSED", "OK", "STORE", "Answer", "as_object", "as_store_error", "httpx")

STORE: Final = "cosid proxy"

OK: Final = range(200, 300)
MOVED: Final = range(300, 400)
FORBIDDEN: Final = {401, 403, 407}
LATER: Final = {408, 425, 429}
SERVER_FAILS: Final = 500

CLOSED: Final = "closed while the call was under way"

_BAD_REQUESTS: Final = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_OTHER_LOOP: Final = (
    "the httpx client has connections of another event loop; the request may have taken effect"
)
_OF_RUNTIME: Final = {
    "client has been closed": CLOSED,
    "Event loop is closed": _OTHER_LOOP,
    "a different event loop": _OTHER_LOOP,
    "a different loop": _OTHER_LOOP,
}
_DRIVER: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)


@dataclass(frozen=True, slots=True)
class Answer:
    """A proxy's answer.

    Attributes:
        status: the HTTP status.
        body: the whole body.
    """

    status: int
    body: bytes

    @property
    def value(self) -> Any:  # noqa: ANN401 - whatever came
        """The parsed body; None if it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def code(self) -> str:
        """The ``code`` of CosId's error; empty if there is none, or if the call succeeded."""
        found = as_object(self.value).get("code")
        return found if isinstance(found, str) and self.status not in OK else ""

    def refusal(self) -> StoreError:
        """Return the error for a refused call, of the class that fits the status."""
        said = [f"HTTP {self.status}, {self.code}" if self.code else f"HTTP {self.status}"]
        said += filter(None, [self._message()])
        if self.status in MOVED:
            said.append("it redirects; give the URL that it leads to")
        kind = StoreError
        if self.status in FORBIDDEN:
            kind = StoreAuthenticationError
        elif self.status in LATER or self.status >= SERVER_FAILS:
            kind = StoreUnavailableError
        return kind(STORE, ": ".join(said))

    def _message(self) -> str:
        """Return the message of CosId's error, or nothing: ``msg``, followed by ``errors``."""
        error = as_object(self.value)
        texts: list[Any] = [error.get("msg")]
        if isinstance(error.get("errors"), list):
            fields = map(as_object, cast("list[Any]", error["errors"]))
            texts += [f"{each.get('field')} {each.get('msg')}" for each in fields]
        return "; ".join(text for text in texts if isinstance(text, str))[:MOST_SHOWN]

    def unexpected(self, expected: str) -> StoreError:
        """Return the error for a body that no CosId proxy would send."""
        shown = repr(self.body[:MOST_SHOWN].decode(errors="replace"))
        return StoreError(STORE, f"it answered {shown}, not {expected}; is it a CosId proxy?")


def as_object(value: Any) -> dict[str, Any]:  # noqa: ANN401 - what JSON holds
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


@contextmanager
def as_store_error() -> Generator[None]:
    """Translate the driver's errors; let all others pass."""
    try:
        yield
    except CosIdError:
        raise
    except _DRIVER as exc:
        raise _meaning(exc) from exc
    except RuntimeError as exc:
        found = next((text for said, text in _OF_RUNTIME.items() if said in str(exc)), None)
        if found is None:
            raise
        raise StoreUnavailableError(STORE, found) from exc


def _meaning(exc: Exception) -> StoreError:
    text = str(exc) or type(exc).__name__
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(exc)):
        remedy = "pass an httpx.AsyncClient with its authority in verify="
        return untrusted(STORE, text, remedy)
    if isinstance(exc, httpx.HTTPStatusError):  # raised by a hook of the user's client
        return Answer(exc.response.status_code, b"").refusal()
    if isinstance(exc, _BAD_REQUESTS):
        return StoreError(STORE, text)
    return StoreUnavailableError(STORE, text)


def _causes(exc: BaseException) -> Generator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = exc
    while cause is not None and id(cause) not in seen:  # the causes may form a cycle
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
