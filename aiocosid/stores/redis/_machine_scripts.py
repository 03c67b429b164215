"""The scripts that hand out machine ids, guard them and take them back, on CosId's own keys.

They are the ``.lua`` files of this package; what all have in common is in ``machine_common.lua``.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from ...abc._machine import WIDTH_EXPECTED
from ...errors import CorruptMachineStateError
from ._errors import STORE, translated
from ._scripts import Script

if TYPE_CHECKING:
    from ._link import Link

__all__ = (
    "BITS",
    "DISTRIBUTE",
    "GUARD",
    "LIST",
    "PREFIX",
    "REVERT",
    "MachineKeys",
    "ask",
    "text_of",
)

PREFIX: Final = "cosid:{"

# In the order of the scripts' KEYS.
_SUFFIXES: Final = ("itc_idx", "adder", "revert", "mark", "stable", "token", "seen", "bits")


def _script(name: str) -> Script:
    folder = files(__package__ or "")
    texts = [folder.joinpath(f"machine_{each}.lua").read_bytes() for each in ("common", name)]
    return Script(b"".join(texts))


DISTRIBUTE: Final = _script("distribute")
GUARD: Final = _script("guard")
REVERT: Final = _script("revert")
LIST: Final = _script("list")
BITS: Final = _script("bits")


class MachineKeys:
    """The keys of one namespace; its braces put them into one slot of a cluster."""

    __slots__ = ("names",)

    def __init__(self, namespace: str) -> None:
        self.names = tuple(f"{PREFIX}{namespace}}}:{suffix}".encode() for suffix in _SUFFIXES)

    @staticmethod
    def namespace_of(key: str) -> str | None:
        """Return the namespace of which this is the hash of entries or the pool."""
        for suffix in ("}:itc_idx", "}:revert"):
            if key.startswith(PREFIX) and key.endswith(suffix):
                return key[len(PREFIX) : -len(suffix)]
        return None


async def ask(
    link: Link, script: Script, keys: MachineKeys, *arguments: bytes | int
) -> tuple[str, list[str]]:
    """Run a script and return what it found, and the facts of it.

    Raises:
        CorruptMachineStateError: something in the store is damaged; nothing was written.
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
        if key == keys.names[-1].decode():
            named = {"expected": WIDTH_EXPECTED}
        raise CorruptMachineStateError(STORE, place=place, found=repr(value), **named)
    return found, facts


def text_of(value: bytes) -> str:
    """Return a key, a field or a reply as it was written: UTF-8; what is none comes escaped."""
    return value.decode(errors="backslashreplace")
