"""The source of machine ids: one lease for each store and namespace."""

from __future__ import annotations

import os
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...abc import InstanceId
from ...abc.leases import LeaseTerms
from ...abc.options import declared
from ...errors import InvalidArgumentError
from ...machine import (
    MachineIdLease,
    ManualMachineIdDistributor,
    StatefulSetMachineIdDistributor,
)
from ._places import placed
from ._values import misplaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...abc import Clock, MachineIdDistributor, Store
    from ...abc.events import Instrument
    from ._models import MachineSettings, Settings
    from ._planned import Planned

__all__ = ("Machines",)

BY_HAND: Final = {"interval", "worker", "worker_bits", "state_dir"}

TAKES: Final[dict[str, set[str]]] = {
    "store": {
        *("instance_id", "stable", "safe_guard", "interval"),
        *("state_dir", "offline", "offline_beside_cosid", "region", "region_bits"),
    },
    "manual": {"machine_id", "instance_id", "stable", *BY_HAND},
    "stateful-set": {"pod_name", *BY_HAND},
}
"""The keys of each source; those of the lease can be used with all sources."""

REHEARSAL_POD: Final = "pod-0"


class Machines:
    """Creates leases, and sends nothing."""

    def __init__(
        self,
        settings: Settings,
        note: Callable[[tuple[str, ...], str], None],
        *,
        instrument: Instrument | None,
        clock: Clock | None,
        rehearsal: bool,
    ) -> None:
        self._settings = settings
        self._note = note
        self._instrument = instrument
        self._clock = clock
        self._rehearsal = rehearsal
        self._first: dict[tuple[str, str], tuple[int, Planned]] = {}
        self._leases: dict[tuple[str, str], MachineIdLease] = {}
        self._is_refused = False

    def lease(
        self, planned: Planned, place: str, store: Store | None, bits: int
    ) -> MachineIdLease | None:
        """Return the lease for a generator; None if there can be none, which is recorded.

        Args:
            planned: the generator.
            place: the store's place; empty if the ids do not come from a store.
            store: the store, if it could be created.
            bits: the width of its machine ids.
        """
        key = place, planned.namespace
        width, other = self._first.setdefault(key, (bits, planned))
        if width != bits:
            remedy = "give it a namespace of its own, or the same width"
            where = ".".join(other.path)
            self._note(
                planned.path,
                f"takes machine ids of {bits} bits in namespace {planned.namespace!r}, where "
                f"{where} takes some with {width} bits; {remedy}",
            )
            return None
        if key not in self._leases and (store is not None or not place):
            distributor = self._distributor(store, planned.namespace)
            lease = None if distributor is None else self._lease(distributor, bits)
            if lease is not None:
                self._leases[key] = lease
        return self._leases.get(key)

    def check_unused(self) -> None:
        """Record keys that do not fit the source, even if no generator needs a lease."""
        if not self._leases and not self._is_refused:
            self._fit_source(self._settings.machine)

    @property
    def leases(self) -> list[MachineIdLease]:
        """The leases that the generators use."""
        return list(self._leases.values())

    def _distributor(self, store: Store | None, namespace: str) -> MachineIdDistributor | None:
        machine = self._settings.machine
        if self._is_refused or not self._fits(machine):
            self._is_refused = True  # recorded once, not for every generator
            return None
        try:
            return self._make(machine, store, namespace)
        except InvalidArgumentError as error:
            self._refuse(error)
            return None

    def _lease(self, distributor: MachineIdDistributor, bits: int) -> MachineIdLease | None:
        machine = self._settings.machine
        terms: dict[str, Any] = {name: getattr(machine, name) for name in declared(LeaseTerms)}
        threshold = machine.broken_threshold
        try:
            return MachineIdLease(
                distributor,
                bits=bits,
                broken_threshold=None if threshold == inf else threshold,
                close_timeout=self._settings.close_timeout,
                instrument=self._instrument,
                clock=self._clock,
                **terms,
            )
        except InvalidArgumentError as error:
            self._refuse(error)
            return None

    def _refuse(self, error: InvalidArgumentError) -> None:
        self._is_refused = True
        self._note(*placed(error, ("machine",), self._settings.machine))

    def _fits(self, machine: MachineSettings) -> bool:
        """Record the keys that do not fit the source."""
        fits = self._fit_source(machine)
        if machine.source == "manual" and machine.machine_id is None:
            self._note(("machine", "machine_id"), "is required by source = 'manual'")
            fits = False
        return fits

    def _fit_source(self, machine: MachineSettings) -> bool:
        wrong = [*misplaced(machine.model_fields_set, machine.source, TAKES, "source")]
        for key, reason in wrong:
            self._note(("machine", key), reason)
        return not wrong

    def _make(
        self, machine: MachineSettings, store: Store | None, namespace: str
    ) -> MachineIdDistributor:
        own = TAKES[machine.source] - {"instance_id", "stable"}
        options: dict[str, Any] = {
            key: value for key in own if (value := getattr(machine, key)) is not None
        }
        options["namespace"] = namespace
        if machine.instance_id is not None:
            options["instance_id"] = InstanceId(machine.instance_id, stable=machine.stable)
        elif machine.stable:
            rule = "requires instance_id: without one each start is another instance"
            raise InvalidArgumentError("stable", machine.stable, rule)
        if store is not None:
            return store.machine_id_distributor(**options)
        if machine.source == "manual":
            return ManualMachineIdDistributor(**options)
        if self._rehearsal and "POD_NAME" not in os.environ:
            options.setdefault("pod_name", REHEARSAL_POD)
        return StatefulSetMachineIdDistributor(**options)
