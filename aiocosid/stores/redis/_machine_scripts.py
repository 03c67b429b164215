"""The scripts that hand out machine ids, guard them and take them back, on CosId's own keys.

They are the ``.lua`` files of this package; what all have in common is in ``machine_common.lua``.
"""

from __future__ import annotations

from importlib.resources import files
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...abc._machine import WIDTH_EXPECTED
from ...errors import (
    CorruptMachineStateError,
    MachineIdQuarantineError,
    StoreAuthenticationError,
)
from ._errors import STORE, translated
from ._scripts import Script

if TYPE_CHECKING:
    from ._link import Link

__all__ = (
    "BITS",
    "DISTRIBUTE",
    "ENTRIES",
    "GUARD",
    "LIST",
    "MARK",
    "MARKER",
    "PREFIX",
    "REVERT",
    "MachineKeys",
    "ask",
    "guard_ms",
    "seconds_of",
    "text_of",
)

PREFIX: Final = "cosid:{"

LONGEST: Final = 2**52  # ms; what is longer has no end

HIDDEN: Final = (
    "the server hides who it is, by which one that forgot is found out ({}); allow it to the user: "
    "ACL SETUSER ... +info"
)

# In the order of the scripts' KEYS.
_SUFFIXES: Final = (
    "itc_idx",
    "adder",
    "revert",
    "mark",
    "stable",
    "token",
    "seen",
    "bits",
    "marker",
    "claim",
)


ENTRIES: Final = ("}:itc_idx", "}:revert")
MARKER: Final = ("}:marker",)


def _script(name: str) -> Script:
    folder = files(__package__ or "")
    texts = [folder.joinpath(f"machine_{each}.lua").read_bytes() for each in ("common", name)]
    return Script(b"".join(texts))


DISTRIBUTE: Final = _script("distribute")
GUARD: Final = _script("guard")
REVERT: Final = _script("revert")
LIST: Final = _script("list")
BITS: Final = _script("bits")
MARK: Final = _script("mark")


class MachineKeys:
    """The keys of one namespace; its braces put them into one slot of a cluster."""

    __slots__ = ("names", "namespace", "width")

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.width = f"{PREFIX}{namespace}}}:bits"
        self.names = tuple(f"{PREFIX}{namespace}}}:{suffix}".encode() for suffix in _SUFFIXES)

    @staticmethod
    def namespace_of(key: str, suffixes: tuple[str, ...] = ENTRIES) -> str | None:
        """Return the namespace of which this is the hash of entries or the pool, or another."""
        for suffix in suffixes:
            if key.startswith(PREFIX) and key.endswith(suffix):
                return key[len(PREFIX) : -len(suffix)]
        return None


async def ask(
    link: Link, script: Script, keys: MachineKeys, *arguments: bytes | int
) -> tuple[str, list[str]]:
    """Run a script and return what it found, and the facts of it.

    Raises:
        CorruptMachineStateError: something in the store is damaged; nothing was written.
        MachineIdQuarantineError: the server may have forgotten who holds which.
        StoreAuthenticationError: the server does not tell who it is; or as always.
        StoreError: the server refuses or cannot be reached.
        ForkedError: the connections are the parent's.
    """

    async def run(client: Any) -> list[str]:  # noqa: ANN401 - the driver's
        reply = await script.run_on(client, keys.names, *arguments)
        return [text_of(each) for each in reply]

    with translated():
        found, *facts = await link.call(run)
    if found == "damaged":
        key, field, value = facts
        place, named = f"{key}[{field}]" if field else key, {}
        if key == keys.width:
            named = {"expected": WIDTH_EXPECTED}
        raise CorruptMachineStateError(STORE, place=place, found=repr(value), **named)
    if found == "hidden":
        raise StoreAuthenticationError(STORE, HIDDEN.format(*facts))
    if found == "quarantine":
        left = seconds_of(*facts)
        raise MachineIdQuarantineError(STORE, namespace=keys.namespace, seconds_left=left)
    return found, facts


def seconds_of(left: str) -> float:
    """Return the seconds that a quarantine has left, of a reply."""
    return int(left) / 1000 if left else inf


def guard_ms(seconds: float) -> bytes | int:
    """Return a safe guard as the scripts take it: 0 would be none, and they count up to 2^53-1."""
    return b"" if seconds * 1000 >= LONGEST else max(round(seconds * 1000), 1)


def text_of(value: bytes) -> str:
    """Return a key, a field or a reply as it was written: UTF-8; what is none comes escaped."""
    return value.decode(errors="backslashreplace")
