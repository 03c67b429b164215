"""Which stores a URL puts side by side."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from ...errors import InvalidArgumentError
from ._distributor import STORE_TIMEOUT

__all__ = ("read_url",)

EXPECTED: Final = "striped:?store=URL&store=URL, percent-encoded; store_timeout=SECONDS may follow"


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
    if not timeouts:
        return stores, STORE_TIMEOUT
    try:
        return stores, float(timeouts[0])
    except ValueError:
        raise InvalidArgumentError("store_timeout", timeouts[0], expected="a number") from None
