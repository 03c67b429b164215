"""When a certificate expires: reads just this field, without a library."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

__all__ = ("certificate_ends",)

FIRST: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
VERSION: Final = 0xA0  # the tag of a field that the oldest certificates do not have
UTC_TIME: Final = 0x17  # with two digits of the year, up to 2049
LONG: Final = 0x80


def certificate_ends(path: str) -> datetime:
    """Return the end of validity of the first certificate in a PEM file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file contains no certificate.
    """
    found = FIRST.search(Path(path).read_text("ascii", "replace"))
    if found is None:
        raise ValueError(path)
    try:
        return _end_of(ssl.PEM_cert_to_DER_cert(found[0]))
    except IndexError:
        raise ValueError(path) from None


def _end_of(der: bytes) -> datetime:
    """Return ``notAfter``: the second field of the validity in the certificate's contents."""
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    if der[at] == VERSION:
        at = _element(der, at)[2]
    for _ in range(3):  # serial number, algorithm, issuer
        at = _element(der, at)[2]
    _, at, _ = _element(der, at)
    tag, start, end = _element(der, _element(der, at)[2])
    text = der[start:end].decode("ascii", "replace")
    form = "%y%m%d%H%M%SZ" if tag == UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text, form).replace(tzinfo=UTC)


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return an element's tag, and the start and end of its contents."""
    tag, size, at = der[at], der[at + 1], at + 2
    if size >= LONG:
        count = size - LONG
        size, at = int.from_bytes(der[at : at + count], "big"), at + count
    return tag, at, at + size
