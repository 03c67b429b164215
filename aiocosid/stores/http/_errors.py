"""Turns what the driver raises, and what a proxy answers, into our errors, in one place."""

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

try:
    import httpx
except ModuleNotFoundError as _exc:
    raise MissingExtraError("httpx", extra="http") from _exc

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = (
    "LOST",
    "OVERFLOW",
    "STORE",
    "UNKNOWN",
    "Answer",
    "as_object",
    "refusal",
    "translated",
    "unexpected",
    "value_of",
)

STORE: Final = "cosid proxy"

OVERFLOW: Final = "M-01"
UNKNOWN: Final = "M-02"
LOST: Final = "M-03"

OK: Final = range(200, 300)
MOVED: Final = range(300, 400)
FORBIDDEN: Final = {401, 403, 407}
LATER: Final = {408, 425, 429}
SERVER_FAILS: Final = 500

_BAD_REQUESTS: Final = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_OTHER_LOOP: Final = "the httpx client has connections of another event loop; it may have acted"
_OF_RUNTIME: Final = {
    "client has been closed": "closed while the call was under way",
    "Event loop is closed": _OTHER_LOOP,
    "a different event loop": _OTHER_LOOP,
    "a different loop": _OTHER_LOOP,
}
_DRIVER: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a proxy has answered.

    Attributes:
        status: of HTTP.
        body: all of it.
    """

    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether the call was done."""
        return self.status in OK

    @property
    def code(self) -> str:
        """The ``code`` of CosId's error, or nothing."""
        found = self._error().get("code")
        return found if isinstance(found, str) else ""

    @property
    def message(self) -> str:
        """What CosId's error says, or nothing: ``msg``, and behind it ``errors``."""
        error = self._error()
        said: list[Any] = [error.get("msg")]
        if isinstance(error.get("errors"), list):
            fields = cast("list[Any]", error["errors"])
            said += [f"{told.get('field')} {told.get('msg')}" for told in map(as_object, fields)]
        return "; ".join(text for text in said if isinstance(text, str))[:MOST_SHOWN]

    def _error(self) -> dict[str, Any]:
        try:
            return as_object(json.loads(self.body))
        except (ValueError, RecursionError):
            return {}


def as_object(value: Any) -> dict[str, Any]:  # noqa: ANN401 - what JSON holds
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def refusal(answer: Answer) -> StoreError:
    """Return the error for an answer that is not OK, and for which there is none of its own."""
    status, said = answer.status, answer.message
    text = f"HTTP {status}" + (f", {answer.code}" if answer.code else "")
    text += f": {said}" if said else ""
    if status in FORBIDDEN:
        return StoreAuthenticationError(STORE, text)
    if status in LATER or status >= SERVER_FAILS:
        return StoreUnavailableError(STORE, text)
    if status in MOVED:
        return StoreError(STORE, f"{text}: it redirects; give the URL that it leads to")
    return StoreError(STORE, text)


def value_of(answer: Answer, expected: str) -> Any:  # noqa: ANN401 - whatever came
    """Return what the body of an answer that is OK says.

    Raises:
        StoreError: it is no JSON.
    """
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise unexpected(answer, expected) from None


def unexpected(answer: Answer, expected: str) -> StoreError:
    """Return the error for a body that is not what CosId's proxy answers."""
    shown = repr(answer.body[:MOST_SHOWN].decode(errors="replace"))
    return StoreError(STORE, f"it answered {shown}, not {expected}; is it a CosId proxy?")


@contextmanager
def translated() -> Generator[None]:
    """Raise our error from the driver's; what is neither's goes through."""
    try:
        yield
    except CosIdError:
        raise
    except _DRIVER as exc:
        raise _meaning(exc) from exc
    except RuntimeError as exc:
        found = next((told for said, told in _OF_RUNTIME.items() if said in str(exc)), None)
        if found is None:
            raise
        raise StoreUnavailableError(STORE, found) from exc


def _meaning(exc: Exception) -> StoreError:
    text = str(exc) or type(exc).__name__
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(exc)):
        remedy = "pass an httpx.AsyncClient whose verify= knows its authority"
        return StoreError(STORE, f"the server's certificate is not trusted ({text}); {remedy}")
    if isinstance(exc, httpx.HTTPStatusError):  # raised by a hook of the user's client
        return refusal(Answer(exc.response.status_code, b""))
    if isinstance(exc, _BAD_REQUESTS):
        return StoreError(STORE, text)
    return StoreUnavailableError(STORE, text)


def _causes(exc: BaseException) -> Generator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = exc
    while cause is not None and id(cause) not in seen:  # a ring of causes would never end
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
