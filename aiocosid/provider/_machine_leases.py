"""The leases of a provider's machine ids: one for each namespace on its store, and the caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._kinds import LeaseTerms, MachineOptions
from ..abc import MachineIdDistributor
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .._life.component import Root
    from ..abc import Clock, Store
    from ..machine import MachineIdLease

__all__ = ("MachineLeases",)

LEASE_TERMS: Final = LeaseTerms.__annotations__.keys()
OF_STORE: Final = ("instance_id", "safe_guard", "interval")
"""The `MachineOptions` of the store's own machine ids."""


class MachineLeases:
    """Creates the leases that a provider's generators share; nothing is sent.

    Attributes:
        shared: the lease of the store's machine ids in each namespace.
    """

    __slots__ = ("_clock", "_defaults", "_options", "_store", "shared")

    def __init__(
        self,
        store: Store,
        options: MachineOptions,
        defaults: Mapping[str, object],
        clock: Clock | None,
    ) -> None:
        if unknown := options.keys() - MachineOptions.__annotations__.keys():
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        if options.get("machine") is not None:
            _refuse(options, OF_STORE)
        self.shared: dict[str, MachineIdLease] = {}
        self._store = store
        self._options = options
        self._defaults = defaults
        self._clock = clock

    def lease_for(
        self, namespace: str, bits: int, options: Mapping[str, Any], root: Root | None
    ) -> MachineIdLease:
        """Return the lease of a generator's machine id.

        Args:
            namespace: the provider's.
            bits: the width of the machine id.
            options: the generator's own; they come before the provider's.
            root: where the tasks of a shared lease run.

        Raises:
            InvalidArgumentError: the machine id is leased with other options, or an option does not
                go with the ``machine`` that was given.
        """
        from ..machine import MachineIdLease, lease_of

        machine: object = options.get("machine", self._options.get("machine"))
        if machine is None:
            lease = self.shared_lease(namespace, bits, options, root)
        else:
            _refuse(options, OF_STORE)
            if isinstance(machine, MachineIdLease):
                _refuse(options, LEASE_TERMS)
                return machine
            if not isinstance(machine, MachineIdDistributor):
                expected = "a MachineIdDistributor or a MachineIdLease"
                raise InvalidArgumentError("machine", machine, expected=expected)
            lease = lease_of(machine, bits=bits, clock=self._clock, **self._terms(options))
        _check_terms(lease, options)
        return lease

    def shared_lease(
        self, namespace: str, bits: int, options: Mapping[str, Any], root: Root | None
    ) -> MachineIdLease:
        """Return the lease of the store's machine ids in a namespace."""
        from ..machine import MachineIdLease

        lease = self.shared.get(namespace)
        if lease is None or lease._is_left_by(bits):
            distributor = self._store.machine_id_distributor(
                namespace=namespace, **self._chosen(options, OF_STORE)
            )
            lease = self.shared[namespace] = MachineIdLease(
                distributor, bits=bits, clock=self._clock, **self._terms(options)
            )
        lease._host = root
        return lease

    def _terms(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._defaults, **self._chosen(options, LEASE_TERMS)}

    def _chosen(self, options: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Return the options of these names, a generator's before the provider's."""
        both = {**self._options, **options}
        return {name: both[name] for name in names if name in both}


def _check_terms(lease: MachineIdLease, options: Mapping[str, Any]) -> None:
    """Raise `InvalidArgumentError` if a lease has other terms than a generator asks for."""
    from .._instance_id import as_instance_id

    for name, value in options.items():
        if name == "machine" or value is None:
            continue
        wanted = as_instance_id(value) if name == "instance_id" else value
        found = getattr(lease._options if name in LEASE_TERMS else lease.distributor, name)
        if wanted != found:
            expected = f"{found}, with which the machine id of {lease.namespace!r} is leased"
            raise InvalidArgumentError(name, value, expected=expected)


def _refuse(options: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise if options of the store's machine ids are given beside a ``machine``."""
    for name in names:
        if name in options:
            expected = "left out with this machine, which has its own"
            raise InvalidArgumentError(name, options[name], expected=expected)
