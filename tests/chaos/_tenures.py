"""Proves from ids that no machine id had two owners at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiocosid.snowflake import SnowflakeLayout

from ._check import SHOWN, OwnedRun
from ._record import MIXED


@dataclass
class Tenures:
    """Watches runs of Snowflakes: each owner's ids of a machine id are one stretch of time.

    An owner is a record, and a worker begins a new one with each machine id that it is given.  Of
    two that share a machine id, one has to be past before the other begins.

    Attributes:
        layout: how the ids are made.
        names: of the records; `of` finds them.
        interleaved: what was found: the machine id, an id, and the two owners.
        machine_ids: how many machine ids were used.
        owners: how many owners there were, counted for each machine id.
    """

    layout: SnowflakeLayout
    names: Sequence[str]
    interleaved: list[tuple[int, int, str, str]] = field(default_factory=list)
    violations: int = 0
    _now: dict[int, int] = field(default_factory=dict)
    _past: dict[int, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, layout: SnowflakeLayout, paths: Sequence[Path]) -> Tenures:
        """Watch the records in this order."""
        return cls(layout, [path.name for path in paths])

    @property
    def machine_ids(self) -> int:
        """How many machine ids were used."""
        return len(self._now)

    @property
    def owners(self) -> int:
        """How many owners there were, counted for each machine id."""
        return sum(map(len, self._past.values()))

    def see(self, run: OwnedRun) -> None:
        """Look at the next run of ids."""
        if self.names[run.owner].endswith(MIXED):
            return  # of one of two owners, and it is not told which
        machine_id = self._machine_of(run)
        before = self._now.get(machine_id)
        if before == run.owner:
            return
        past = self._past.setdefault(machine_id, set())
        if before is not None and run.owner in past:
            self.violations += 1
            if len(self.interleaved) < SHOWN:
                names = self.names[before], self.names[run.owner]
                self.interleaved.append((machine_id, run.first, *names))
        past.add(run.owner)
        self._now[machine_id] = run.owner

    def _machine_of(self, run: OwnedRun) -> int:
        shift, count = self.layout._machine_shift, self.layout.machine_count
        if run.first >> shift != run.last >> shift:
            raise ValueError(f"{run} spans two ticks or machine ids, which consecutive ids cannot")
        return (run.first >> shift) % count
