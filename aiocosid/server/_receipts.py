"""Receipts, with which a client proves its machine id after the store has lost it.  No I/O.

The server stores no leases, and an emptied store has none either.  So the client keeps a receipt
that the server has signed: who got which machine id when, and until when the lease is valid.  Each
renewal returns a new receipt.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..machine.operations import RenewOperation

__all__ = ("Lasting", "is_signed", "receipt_of", "times_of")

DIGITS: Final = 32

_RECEIPT: Final = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})\.[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """The facts that stay the same while a machine id is held.

    Attributes:
        namespace: the namespace.
        owner: the name of the holder's access.
        instance: the instance id.
        machine_id: the machine id.
        bits: the machine id's width.
        region_code: the machine id's region; 1 without regions.
        requested_ms: when the instance took it, in milliseconds on the server's clock.
        token: the token of the call that obtained it.
    """

    namespace: str
    owner: str
    instance: str
    machine_id: int
    bits: int
    region_code: int
    requested_ms: int
    token: str

    @classmethod
    def of(cls, namespace: str, owner: str, asked: RenewOperation) -> Lasting:
        """Return the facts that a client states when it renews."""
        return cls(
            namespace=namespace,
            owner=owner,
            instance=asked.instance,
            machine_id=asked.machine_id,
            bits=asked.bits,
            region_code=asked.region_code,
            requested_ms=asked.requested_ms,
            token=asked.token,
        )


def receipt_of(key: str, lease: Lasting, until_ms: int) -> str:
    """Return the receipt of a lease.

    Args:
        key: the secret that all servers share.
        lease: the lease.
        until_ms: when the lease ends without a renewal, unix time in milliseconds.
    """
    facts = json.dumps([until_ms, *(getattr(lease, name) for name in lease.__slots__)])
    digest = hmac.digest(key.encode(), facts.encode(), hashlib.sha256).hex()
    return f"{until_ms}.{lease.requested_ms}.{digest[:DIGITS]}"


def times_of(receipt: str) -> tuple[int, int]:
    """Return when a lease ends without a renewal, and when it began; -1 if not a receipt."""
    match = _RECEIPT.fullmatch(receipt)
    return (-1, -1) if match is None else (int(match[1]), int(match[2]))


def is_signed(key: str, lease: Lasting, receipt: str) -> bool:
    """Return whether a server has signed the receipt for this lease."""
    until_ms, _ = times_of(receipt)
    real = receipt_of(key, lease, until_ms)
    return bool(key) and hmac.compare_digest(real.encode(), receipt.encode())
