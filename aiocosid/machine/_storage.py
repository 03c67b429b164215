"""What an instance stores about its machine id from one process to the next."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from anyio import to_thread

from ..abc import MAX_ID
from ..abc.checks import MAX_MACHINE_BITS
from ..errors import CorruptMachineStateError, InvalidArgumentError
from ._files import STORE, read_text, remove, write_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..abc import InstanceId

__all__ = (
    "NOT_FOUND",
    "MachineState",
    "StateFiles",
    "in_thread",
)

T = TypeVar("T")

MAX_FILE_NAME: Final = 255
"""Bytes, on nearly every file system."""


class StateFiles:
    """One small file per instance, with the names and in the format of CosId on Java.

    Unlike CosId's it is replaced atomically, so a crash leaves no partial file, and it is read to
    its end: a second line counts as damage.  An empty file, as CosId leaves it in a crash, counts
    as none.  The methods block: for worker threads.
    """

    __slots__ = ("directory",)

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, namespace: str, instance_id: InstanceId) -> MachineState:
        """Read the file, or CosId's older one, whose name has no stable flag; or `NOT_FOUND`.

        Raises:
            CorruptMachineStateError: what is stored is damaged.
            StoreError: it cannot be read.
        """
        path = self.path(namespace, instance_id)
        text = read_text(path)
        if text is None and (legacy := self._legacy(namespace, instance_id)) is not None:
            path, text = legacy, read_text(legacy)
        return NOT_FOUND if text is None else _parsed(path, text)

    def set(self, namespace: str, instance_id: InstanceId, state: MachineState) -> None:
        """Replace the file, and remove the older one.

        Raises:
            InvalidArgumentError: the state is `NOT_FOUND`.
            StoreError: it cannot be written.
        """
        write_text(self.path(namespace, instance_id), str(_worth_keeping(state)))
        self._remove_legacy(namespace, instance_id)

    def remove(self, namespace: str, instance_id: InstanceId) -> None:
        """Remove both."""
        remove(self.path(namespace, instance_id))
        self._remove_legacy(namespace, instance_id)

    def path(self, namespace: str, instance_id: InstanceId) -> Path:
        """Return the path: ``v2.NAMESPACE.INSTANCE.STABLE``, the first two parts in base64."""
        words = (url_base64(namespace), url_base64(instance_id.text))
        return self.directory / ".".join(["v2", *words, str(instance_id.stable).lower()])

    def _remove_legacy(self, namespace: str, instance_id: InstanceId) -> None:
        if (legacy := self._legacy(namespace, instance_id)) is not None:
            remove(legacy)

    def _legacy(self, namespace: str, instance_id: InstanceId) -> Path | None:
        name = b64encode(f"{namespace}__{instance_id.text}".encode()).decode()
        # Plain base64, not the one for file names: CosId could never write a name with a slash.
        return None if "/" in name or len(name) > MAX_FILE_NAME else self.directory / name


def url_base64(text: str) -> str:
    """Return a text as in CosId's file names: base64 for URLs, without padding."""
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


async def in_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a worker thread; a cancelled caller does not wait for its end.

    Otherwise a hanging disk or network file system would hold the caller past every deadline.
    """
    return await to_thread.run_sync(function, abandon_on_cancel=True)


def _parsed(path: Path, text: str) -> MachineState:
    line = text.removesuffix("\n").removesuffix("\r")
    if not line:
        return NOT_FOUND
    try:
        return MachineState.parse(line)
    except InvalidArgumentError:
        found = repr(text[:60])
        raise CorruptMachineStateError(STORE, place=str(path), found=found) from None


def _worth_keeping(state: MachineState) -> MachineState:
    if state.machine_id < 0:
        raise InvalidArgumentError("state", state, expected="the state of a machine id")
    return state


MAX_MACHINE_ID: Final = 2**MAX_MACHINE_BITS - 1

TEXT: Final = re.compile(r"([+-]?[0-9]{1,20})\|([+-]?[0-9]{1,20})")
"""What Java's ``Integer.parseInt`` and ``Long.parseLong`` accept, without forms that no program
writes.
"""


@dataclass(frozen=True, slots=True)
class MachineState:
    """A machine id as it is stored.

    Unlike CosId's, two states are equal only if both numbers are.

    Attributes:
        machine_id: the number, or -1 where there is none.
        last_timestamp_ms: the owner's last renewal, unix time in milliseconds, or -1.
    """

    machine_id: int
    last_timestamp_ms: int

    def __str__(self) -> str:
        """Write it as CosId does: ``machine_id|last_timestamp_ms``."""
        return f"{self.machine_id}|{self.last_timestamp_ms}"

    @classmethod
    def parse(cls, text: str) -> MachineState:
        """Read ``machine_id|last_timestamp_ms``.

        Raises:
            InvalidArgumentError: the text is anything else; its ``value`` is what was found.
        """
        found = TEXT.fullmatch(text)
        numbers = (int(found[1]), int(found[2])) if found else (-2, -2)
        if not (-1 <= numbers[0] <= MAX_MACHINE_ID and -1 <= numbers[1] <= MAX_ID):
            raise InvalidArgumentError("machine state", text, expected="machine_id|timestamp_ms")
        return cls(*numbers)


NOT_FOUND: Final = MachineState(-1, -1)
"""No state is stored; CosId's ``MachineState.NOT_FOUND``."""
