"""The errors of clocks, layouts and machine ids."""

from __future__ import annotations

from math import ceil, inf
from shlex import quote
from typing import Final

from ._general import MOST_SHOWN, CosIdError, InvalidArgumentError, StoreError

__all__ = (
    "ClockTooFarForwardError",
    "ClockTooManyBackwardsError",
    "CorruptMachineStateError",
    "InvalidIdError",
    "LayoutExpiredError",
    "MachineBitsMismatchError",
    "MachineIdInUseError",
    "MachineIdLostError",
    "MachineIdOverflowError",
    "MachineIdQuarantineError",
    "MachineIdUnavailableError",
    "StoreNotInitializedError",
)

MOST_OF_A_PLACE: Final = 400  # characters: a path has many


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


class InvalidIdError(InvalidArgumentError):
    """A number or text is no id of the layout or converter it is read or written with."""


class LayoutExpiredError(CosIdError, OverflowError):
    """The layout's time field has no room for the current time: no id can be made any more.

    Attributes:
        last_instant: the last moment of which there can be ids, ISO 8601 in UTC.
    """

    def __init__(self, layout: str, *, last_instant: str, remedy: str) -> None:
        super().__init__(f"{layout} ended at {last_instant}; {remedy}")
        self.last_instant = last_instant


class ClockTooManyBackwardsError(CosIdError):
    """The wall clock is too far behind the last id's time, or behind a stored one, to wait.

    Attributes:
        backwards: seconds that the clock is behind.
        threshold: seconds that a call waits for it at most (`broken_threshold`).
    """

    retryable = True

    def __init__(self, *, backwards: float, threshold: float) -> None:
        super().__init__(
            f"the wall clock is {backwards:g} s behind the last id's time, more than the "
            f"{threshold:g} s that are waited for (broken_threshold); set the clock right"
        )
        self.backwards = backwards
        self.threshold = threshold


class ClockTooFarForwardError(CosIdError):
    """The wall clock jumped further ahead than `max_forward_jump` allows.

    Attributes:
        forward: seconds that it jumped.
        limit: seconds that are allowed.
    """

    retryable = True

    def __init__(self, *, forward: float, limit: float) -> None:
        super().__init__(
            f"the wall clock jumped {forward:g} s ahead, more than the {limit:g} s allowed "
            "(max_forward_jump); set the clock right, or open the generator anew if it is right now"
        )
        self.forward = forward
        self.limit = limit


class MachineBitsMismatchError(CosIdError):
    """The machine ids of the namespace have another width; nothing was taken or written.

    Ids of two layouts under one namespace may be equal.

    Attributes:
        namespace: the namespace.
        bits: the width that was asked for.
        found: the width that the namespace has.
    """

    def __init__(self, namespace: str, *, bits: int, found: int, remedy: str = "") -> None:
        remedy = remedy or (
            f"run 'aiocosid machines bits --namespace {quote(namespace)} --set {bits}'"
        )
        super().__init__(
            f"namespace {namespace!r} has machine ids of {found} bits, and {bits} were asked for; "
            f"take a layout with {found} machine bits, or another namespace; if the width has "
            f"changed for good, close all instances and {remedy}"
        )
        self.namespace = namespace
        self.bits = bits
        self.found = found


class MachineIdOverflowError(CosIdError):
    """All machine ids of the namespace are held; none is ever given out twice instead.

    Attributes:
        namespace: the namespace.
        size: how many machine ids there are.
        holders: some of those who hold them.
    """

    retryable = True

    def __init__(self, namespace: str, *, size: int, holders: tuple[str, ...] = ()) -> None:
        held = f", by {', '.join(holders)}" if holders else ""
        held += ", ..." if 0 < len(holders) < size else ""
        super().__init__(
            f"all {size} machine ids of namespace {namespace!r} are held{held}; "
            "close an instance, use more machine bits, or wait for the safe guard duration of "
            "those that died ('aiocosid machines list' shows them)"
        )
        self.namespace = namespace
        self.size = size
        self.holders = holders


class MachineIdLostError(CosIdError):
    """The machine id is not ours any more: somebody else holds it, or its lease ran out.

    Attributes:
        namespace: the namespace.
        machine_id: the machine id.
    """

    def __init__(self, namespace: str, machine_id: int, *, reason: str) -> None:
        super().__init__(f"machine id {machine_id} of namespace {namespace!r} is lost: {reason}")
        self.namespace = namespace
        self.machine_id = machine_id


class MachineIdInUseError(CosIdError):
    """A machine id, or an instance id, is in use by another process or object.

    On this host, if the id was chosen by hand.  A lease ends with it when its id is taken away
    again and again while it is good: somebody else runs under the same instance id.  And the width
    of a namespace cannot be changed while somebody holds a machine id there.

    Attributes:
        what: what is held.
    """

    def __init__(self, what: str, *, holder: str) -> None:
        super().__init__(f"{what} is in use by {holder}")
        self.what = what


class MachineIdQuarantineError(StoreError):
    """The store may have forgotten who holds which machine id: nobody is handed one for a while.

    It was never marked for the namespace, was emptied, restored or failed over.  Those who run tell
    it again what they hold; whoever asks anew waits until all that do not are silent.

    Attributes:
        namespace: the namespace.
        seconds_left: how long it takes from now, by the store's clock; ``inf`` if it does not end
            by itself.
    """

    retryable = True

    def __init__(self, store: str, *, namespace: str, seconds_left: float) -> None:
        wait = "it does not end by itself (safe_guard=inf)"
        if seconds_left < inf:
            wait = f"wait for {ceil(seconds_left)} s"
        super().__init__(
            store,
            f"it may have forgotten who holds the machine ids of namespace {namespace!r} (emptied, "
            f"restored or failed over); nobody is handed one for now: {wait}, or run "
            f"'aiocosid init --store URL --namespace {quote(namespace)} --yes' if no process "
            "that was started before holds one",
        )
        self.namespace = namespace
        self.seconds_left = seconds_left


class StoreNotInitializedError(MachineIdQuarantineError):
    """The store was never initialised for machine ids, or has been emptied: they look alike.

    No id is handed out.  Initialise it once; left alone it is used after the longest safe guard.
    """

    retryable = False

    def __init__(self, store: str, *, namespace: str, seconds_left: float) -> None:
        super().__init__(store, namespace=namespace, seconds_left=seconds_left)
        what = "it was not initialised for machine ids, or has been emptied since"
        remedy = "run 'aiocosid init --store URL' once"
        self.args: tuple[object, ...] = (f"{store}: {what}: {remedy}",)


class MachineIdUnavailableError(CosIdError):
    """No machine id could be had, or kept, in time; the store's own error is the ``__cause__``.

    Attributes:
        namespace: the namespace.
        waited: seconds that the caller waited.
    """

    retryable = True

    def __init__(self, namespace: str, *, waited: float, reason: str = "") -> None:
        super().__init__(
            f"no machine id of namespace {namespace!r} could be had within {waited:g} s"
            + (f": {reason}" if reason else "")
        )
        self.namespace = namespace
        self.waited = waited


class CorruptMachineStateError(StoreError):
    """A stored machine state is damaged; no id is handed out on a guess.

    Attributes:
        place: the file, key or row that is damaged.
    """

    def __init__(
        self, store: str, *, place: str, found: str, expected: str = "'machine_id|timestamp_ms'"
    ) -> None:
        # Anybody may have put it there: it is shown in short, and without control characters.
        shown = _cut(place if place.isprintable() else repr(place)[1:-1], MOST_OF_A_PLACE)
        found = _cut(found, MOST_SHOWN)
        super().__init__(store, f"{shown} holds {found}, not {expected}; repair or remove it")
        self.place = place
