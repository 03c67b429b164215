"""What was handed out to whom, and what may never happen.  Pure."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("Ledger", "Parse")

Parse: TypeAlias = "Callable[[int], tuple[int, int]]"
"""Returns the machine id in an id, and its time in milliseconds since 1970."""


class Tenure:
    """A machine id in the hands of one process.

    Attributes:
        owner: the process.
        floor_ms: its ids are later.
        lowest_ms: the earliest time of its ids so far.
        highest_ms: the latest.
        has_marks: whether it told the store how late its ids may be; CosId's own do not.
        until: virtual seconds; when the store may give it to somebody else, as far as is known.
        is_over: whether somebody else has used it since.
    """

    __slots__ = ("floor_ms", "has_marks", "highest_ms", "is_over", "lowest_ms", "owner", "until")

    def __init__(self, owner: object, floor_ms: int, *, has_marks: bool) -> None:
        self.owner = owner
        self.has_marks = has_marks
        self.floor_ms = floor_ms
        self.highest_ms = -1
        self.lowest_ms = inf
        self.until = inf
        self.is_over = False


class Ledger:
    """Checks each id and each grant as they come; tells of the first violation it sees.

    Attributes:
        forgets: whether stores may forget how late the ids of a machine id were: then what counts
            is not what an owner was told, but that its ids are later than all of the former ones.
    """

    __slots__ = ("_fail", "_ids", "_machines", "forgets")

    def __init__(self, fail: Callable[[str], object]) -> None:
        """Begin empty.

        Args:
            fail: called with what must not have happened.
        """
        self.forgets = False
        self._fail = fail
        self._ids: dict[str, dict[int, object]] = {}
        self._machines: dict[tuple[str, int], list[Tenure]] = {}

    @property
    def ids(self) -> int:
        """How many ids were handed out."""
        return sum(map(len, self._ids.values()))

    def handed_out(self, counter: str, ids: Sequence[int], to: object) -> None:
        """Take note of ids; no id of one counter comes twice, whoever it is given to."""
        known = self._ids.setdefault(counter, {})
        for new_id in ids:
            before = known.setdefault(new_id, to)
            if before is not to or new_id < 1:
                self._refuse(counter, new_id, before, to)
        if len(set(ids)) < len(ids):
            self._fail(f"ids of {counter} came twice in one list: {list(ids)}")

    def _refuse(self, counter: str, new_id: int, before: object, to: object) -> None:
        if new_id < 1:
            self._fail(f"id {new_id} of {counter} is not positive; {to} got it")
        else:
            self._fail(f"id {new_id} of {counter} was handed out twice: {before}, then {to}")

    def granted(
        self,
        namespace: str,
        machine_id: int,
        owner: object,
        *,
        floor_ms: int,
        has_marks: bool = True,
    ) -> None:
        """Take note of a machine id that the store gave to a process.

        Args:
            namespace: the namespace.
            machine_id: the machine id.
            owner: the process.
            floor_ms: its ids are later.
            has_marks: whether it tells the store how late its ids may be.
        """
        tenures = self._machines.setdefault((namespace, machine_id), [])
        if tenures and tenures[-1].owner is owner:
            # It asked again, and the former owner's late farewell has lowered the mark meanwhile.
            tenures[-1].floor_ms = min(tenures[-1].floor_ms, floor_ms)
        else:
            known = has_marks and not self.forgets
            tenures.append(Tenure(owner, floor_ms, has_marks=known))
        self._check_formers(f"machine id {machine_id} of {namespace}", tenures, tenures[-1])

    def _check_formers(self, what: str, tenures: Sequence[Tenure], taker: Tenure) -> None:
        for former in tenures[: tenures.index(taker)]:
            is_other = former.owner is not taker.owner and former.has_marks
            if is_other and former.highest_ms > taker.floor_ms:
                self._fail(
                    f"{what} went to {taker.owner} above {taker.floor_ms}, but "
                    f"{former.owner} had used it for an id of {former.highest_ms}"
                )

    def _check_unmarked(self, what: str, tenures: Sequence[Tenure], taker: Tenure) -> None:
        for former in tenures[: tenures.index(taker)]:
            if not former.has_marks and former.highest_ms >= taker.highest_ms:
                self._fail(
                    f"{taker.owner} used {what} for an id of {taker.highest_ms}, as late as one "
                    f"of {former.owner}"
                )

    def renewed(self, namespace: str, machine_id: int, owner: object, *, until: float) -> None:
        """Take note of a renewal that has come to the store.

        Args:
            namespace: the namespace.
            machine_id: the machine id.
            owner: the process.
            until: virtual seconds after which somebody else may be given it.
        """
        for tenure in self._machines.get((namespace, machine_id), ()):
            if tenure.owner is owner:
                tenure.until = until

    def interrupted(self, owner: object, *, at: float) -> None:
        """Take note that a process has lost its session: it makes no id before it has renewed.

        Args:
            owner: the process.
            at: virtual seconds; when it has learnt of that.
        """
        for tenures in self._machines.values():
            for tenure in tenures:
                if tenure.owner is owner:
                    tenure.until = min(tenure.until, at)

    def stamped(self, namespace: str, machine_id: int, owner: object, *, now: float) -> None:
        """Take note of an id that was made at this moment; its machine id has to be leased.

        Args:
            namespace: the namespace.
            machine_id: the machine id.
            owner: the process.
            now: virtual seconds.
        """
        what = f"{owner} used machine id {machine_id} of {namespace} at {now:.4f} s"
        own = None
        for tenure in self._machines.get((namespace, machine_id), ()):
            if tenure.owner is owner:
                own = tenure
                if now > tenure.until:
                    self._fail(f"{what}, although its lease had ended at {tenure.until:.4f} s")
            elif tenure.highest_ms >= 0:
                tenure.is_over = True
        if own is not None and own.is_over:
            self._fail(f"{what}, although somebody else had done so since")

    def grants(self, namespace: str, machine_id: int) -> int:
        """Return how often a machine id was given to somebody else than before."""
        return len(self._machines.get((namespace, machine_id), ()))

    def emitted(
        self,
        namespace: str,
        machine_id: int,
        owner: object,
        at_ms: int,
        *,
        grants: int | None = None,
    ) -> None:
        """Take note of an id with a machine id, as it is used.

        Its time has to lie in a span in which the machine id was that process's: above the floor
        it was given with, and not above the floor that the next owner was given.

        Args:
            namespace: the namespace.
            machine_id: the machine id.
            owner: the process.
            at_ms: the time in the id, milliseconds since 1970.
            grants: what `grants` was when the id was made, if it is used later: it is not of what
                was granted since.
        """
        tenures = self._machines.get((namespace, machine_id), [])
        made = tenures[:grants]
        end = inf  # of the span: the floor of the next owner that uses it
        for tenure in reversed(tenures):
            is_own = tenure.owner is owner and tenure in made
            if is_own and tenure.floor_ms < at_ms <= end:
                if tenure.highest_ms < 0:  # as long as nobody used it, the former owner could
                    self._check_formers(f"machine id {machine_id} of {namespace}", tenures, tenure)
                tenure.highest_ms = max(tenure.highest_ms, at_ms)
                tenure.lowest_ms = min(tenure.lowest_ms, at_ms)
                self._check_unmarked(f"machine id {machine_id} of {namespace}", tenures, tenure)
                return
            # A late call of a dead process takes the id for nobody.
            if tenure.highest_ms >= 0:
                end = tenure.lowest_ms - 1 if self.forgets else tenure.floor_ms
        spans = ", ".join(f"{tenure.owner} above {tenure.floor_ms}" for tenure in tenures)
        self._fail(
            f"{owner} used machine id {machine_id} of {namespace} for an id of {at_ms}; "
            f"it was given to: {spans or 'nobody'}"
        )
