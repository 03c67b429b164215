"""The machine ids of one namespace as they lay in etcd, and what a call has changed of them.

The rules are those of `MachinePool`.  Here it is filled with what was read; after a call on it,
what has changed becomes one transaction, which is carried out if nobody has written any of it
since.
"""

from __future__ import annotations

from math import inf
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, cast

from ...abc._machine import DEFAULT_SAFE_GUARD, QUARANTINE_MARGIN
from .._memory_machines import Entry, MachinePool
from .._memory_marker import Claim, Marker
from ._machine_keys import EntryText, MachineKeys, MarkerText
from ._server import put, remove, same, same_value

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("MachineState",)

NAME_BYTES: Final = 8

ALIVE: Final = inf
SILENT: Final = -1e18
"""When an owner was seen last, as a pool is told: etcd tells only whether its lease has ended."""


class MachineState:
    """One namespace at one moment.

    Attributes:
        keys: where it lies.
        pool: the rules, on what lay there.
        elapsed: seconds since the quarantine that runs began, which a pool takes for its clock.
        lives: the lease of each owner that has not been silent for too long, 0 for one without end.
        quarantine_lease: the lease of the quarantine that runs; None if none runs, or it is over.
    """

    __slots__ = (
        *("_entries", "_header", "_marker", "_new_name", "_revisions", "_value", "_was_ours"),
        *("elapsed", "keys", "lives", "pool", "quarantine_lease"),
    )

    def __init__(self, keys: MachineKeys, header: Any, found: Iterable[Any]) -> None:  # noqa: ANN401 - the driver's
        """Read what was found.

        Raises:
            CorruptMachineStateError: something is damaged.
        """
        self.keys = keys
        self._header = header
        self._revisions: dict[bytes, int] = {}
        self._entries: dict[int, EntryText] = {}
        self._marker: MarkerText | None = None
        self._value = b""
        self._was_ours = False
        self._new_name = token_hex(NAME_BYTES)
        self.lives: dict[int, int] = {}
        self.quarantine_lease: int | None = None
        self.elapsed = 0.0
        for each in found:
            self._take(each)
        self.pool = MachinePool(keys.namespace)
        self._fill()

    def _take(self, found: Any) -> None:  # noqa: ANN401 - the driver's
        keys, key = self.keys, found.key
        self._revisions[key] = found.mod_revision
        if key == keys.marker:
            self._marker, self._value = MarkerText.read(key, found.value), found.value
        elif key == keys.quarantine:
            self.quarantine_lease = found.lease
        elif (machine_id := keys.alive_of(key)) is not None:
            self.lives[machine_id] = found.lease
        elif (machine_id := keys.entry_of(key)) is not None:
            self._entries[machine_id] = EntryText.read(key, found.value)

    def _fill(self) -> None:
        pool, noted = self.pool, self._marker
        pool.marker = Marker(is_there=False, is_ours=False)
        if noted is not None:
            pool.bits = noted.bits or None
            is_ours = noted.cluster == self.cluster and noted.term <= self._header.raft_term
            self._was_ours = is_ours
            since = 0.0 if noted.quarantine else None
            pool.marker = Marker(is_ours=is_ours, since=since, longest=noted.guard)
            if noted.quarantine and self.quarantine_lease is None:
                self.set_remaining(-1)
        for machine_id, text in self._entries.items():
            pool.entries[machine_id] = _entry(machine_id, text, is_alive=machine_id in self.lives)
            if noted and noted.quarantine and text.claimed == noted.quarantine and text.instance:
                about = text.instance, text.token, text.born, noted.bits
                pool.marker.claims[machine_id] = Claim(*about, machine_id)

    @property
    def cluster(self) -> str:
        """The cluster that was read from."""
        return f"{self._header.cluster_id:x}"

    @property
    def revision(self) -> int:
        """The cluster's revision then."""
        return int(self._header.revision)

    def is_behind(self, cluster: str, revision: int) -> bool:
        """Tell whether the same cluster was further already."""
        return self.cluster == cluster and self.revision < revision

    @property
    def is_sound(self) -> bool:
        """Whether nothing was forgotten, and no quarantine runs."""
        return self.pool.marker.is_ours and self.pool.marker.since is None

    @property
    def left_for_all(self) -> float:
        """How many seconds a quarantine has left; all, if it is due, and nobody has asked yet."""
        marker = self.pool.marker
        return marker.left(self.elapsed) if marker.is_ours else self.lasts

    @property
    def lasts(self) -> float:
        """How many seconds a quarantine is long."""
        return (self.pool.marker.longest or DEFAULT_SAFE_GUARD) + QUARANTINE_MARGIN

    def set_remaining(self, seconds: int) -> None:
        """Say how many whole seconds the quarantine's lease has left; -1 if it has ended."""
        if self.lasts == inf:
            return  # without an end there is no lease
        self.elapsed = max(0.0, self.lasts - (seconds + 1)) if seconds >= 0 else self.lasts

    def doubt(self) -> None:
        """Say that the cluster was restored from an earlier state, as its revision has gone back.

        If a quarantine runs, somebody has said so already.
        """
        if self.pool.marker.since is None:
            self.pool.marker.is_ours = self._was_ours = False

    # What a call has changed.

    def compares(self, *, by_value: bool) -> list[Any]:
        """Compare: marker and quarantine are as they were.

        Args:
            by_value: whether somebody else may have been handed an id meanwhile.
        """
        keys = self.keys
        if by_value and self._marker is not None:
            return [self._same(keys.quarantine), same_value(keys.marker, self._value)]
        return [self._same(keys.quarantine), self._same(keys.marker)]

    def entry_changes(self, touched: int | None, lease: int) -> tuple[list[Any], list[Any]]:
        """Return comparisons and changes for all machine ids that the call has changed.

        Args:
            touched: the id whose owner gave a sign of life, if one did.
            lease: what that sign is on, 0 for no end.
        """
        compares, changes = list[Any](), list[Any]()
        for machine_id, entry in self.pool.entries.items():
            text = self._text_of(entry)
            if text == self._entries.get(machine_id) and machine_id != touched:
                continue
            key, alive = self.keys.entry(machine_id), self.keys.alive(machine_id)
            compares.append(self._same(key))
            changes.append(put(key, text.text()))
            if machine_id == touched:
                changes.append(put(alive, entry.holder.encode(), lease))
            elif not entry.holder and machine_id in self.lives:
                changes.append(remove(alive))
        return compares, changes

    def quarantine_due(self) -> float | None:
        """Return how many seconds a quarantine has from now, if it begins or becomes longer."""
        marker, before = self.pool.marker, self._marker
        if marker.since is None or not marker.is_ours:
            return None
        if self._goes_on and before is not None and before.guard == marker.longest:
            return None
        return marker.left(self.elapsed)

    def marker_changes(self, lease: int | None, *, always: bool) -> list[Any]:
        """Return the changes for the marker, and for the quarantine's key with it.

        Args:
            lease: for a quarantine that begins or becomes longer, 0 for no end; None if none does.
            always: whether the marker is written although it says the same.
        """
        if not self.pool.marker.is_ours:
            return []  # nobody has looked at it
        after, keys = self._marker_after(), self.keys
        changes = [put(keys.marker, after.text())] if always or after != self._marker else []
        if lease is not None:
            changes.append(put(keys.quarantine, after.quarantine.encode(), lease))
        elif not after.quarantine and keys.quarantine in self._revisions:
            changes.append(remove(keys.quarantine))
        return changes

    @property
    def _goes_on(self) -> bool:
        """Whether the quarantine that runs is the one that ran before."""
        return self._was_ours and self._marker is not None and self._marker.quarantine != ""

    @property
    def _name(self) -> str:
        if self.pool.marker.since is None:
            return ""
        return self._marker.quarantine if self._marker and self._goes_on else self._new_name

    def _marker_after(self) -> MarkerText:
        return MarkerText(
            cluster=self.cluster,
            term=self._header.raft_term,
            bits=self.pool.bits or 0,
            guard=self.pool.marker.longest,
            quarantine=self._name,
        )

    def _text_of(self, entry: Entry) -> EntryText:
        claim = self.pool.marker.claims.get(entry.machine_id)
        before = self._entries.get(entry.machine_id)
        claimed, born = "", 0
        if entry.holder and claim is not None:
            claimed, born = self._name, claim.born_ms
        elif entry.holder and before is not None:  # of a quarantine that is over
            claimed, born = before.claimed, before.born
        return EntryText(
            instance=entry.holder,
            stable=entry.stable,
            stamp=entry.stamp_ms,
            mark=entry.mark_ms,
            token=cast("str | None", entry.token),
            claimed=claimed,
            born=born,
        )

    def _same(self, key: bytes) -> Any:  # noqa: ANN401 - the driver's
        return same(key, self._revisions.get(key, 0))


def _entry(machine_id: int, text: EntryText, *, is_alive: bool) -> Entry:
    return Entry(
        machine_id,
        holder=text.instance,
        stable=text.stable,
        seen=ALIVE if is_alive else SILENT,
        stamp_ms=text.stamp,
        mark_ms=text.mark,
        token=text.token,
    )
