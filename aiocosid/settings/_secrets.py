"""URLs without what is secret in them.  Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

__all__ = ("shown_url",)

SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def shown_url(url: str) -> str:
    """Return scheme, host and path; options and whoever logs in are left out."""
    if SCHEME.match(url) is None:
        return "***"  # no URL: a driver's own text of settings, with a password perhaps
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme}://***"
    if "@" in parts.path + parts.query + parts.fragment:
        return f"{scheme}://***"  # perhaps a password that nobody has escaped
    user, _, host = parts.netloc.rpartition("@")
    return f"{scheme}://{'***@' if user else ''}{host}{parts.path}"
