"""The options of a lease, validated."""
# Without "from __future__ import annotations": the bounds in annotations are read at run time.

import random
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final

from .._life.open_state import back_off
from ..abc import DEFAULT_GUARD_INTERVAL
from ..abc.checks import MAX_MACHINE_BITS
from ..abc.leases import LeaseTerms
from ..abc.machines import region_ids
from ..abc.options import Bounds, Seconds, SecondsOrZero
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..abc import Clock, MachineIdDistributor
    from ..abc.events import Instrument

__all__ = ("USUAL_LEAD", "LeaseOptions", "lead_of")

LAST_BACKOFF: Final = 2.0  # seconds; the end of an outage is noticed at most this much later
JITTER: Final = 0.1  # of an interval, so that processes that started together drift apart
LEAD_SHARE: Final = 1.5  # intervals that the fence is ahead of the clock: one, and a margin
USUAL_LEAD: Final = LEAD_SHARE * DEFAULT_GUARD_INTERVAL  # seconds; assumed for a former owner
USUAL_PATIENCE: Final = 5.0  # seconds that opening tries to reach the store
LEASE_SHARE: Final = 0.9  # of the safe guard, because clocks differ and a renewal takes time


def lead_of(distributor: "MachineIdDistributor") -> float:
    """Return the seconds that a fence is ahead of the clock by default."""
    return distributor.interval * LEAD_SHARE


class LeaseOptions(LeaseTerms):
    """The options of `MachineIdLease`.

    Attributes:
        bits: the width of the machine id, 1 to 31, as in the layouts that use it.
        broken_threshold: seconds to wait for a clock that is behind a stored timestamp; None
            for no limit.
        close_timeout: seconds that closing may take, including the release of the id.
        instrument: receives events.
        clock: tells the time; the system's by default.
    """

    bits: Annotated[int, Bounds(1, MAX_MACHINE_BITS)] = 10
    broken_threshold: SecondsOrZero | None = 2.0
    close_timeout: Seconds = 5.0
    instrument: "Instrument | None" = None
    clock: "Clock | None" = None

    def __post_init__(self) -> None:
        """Check the options that do not depend on the distributor."""
        if self.on_lost not in {"redistribute", "raise"}:
            raise InvalidArgumentError("on_lost", self.on_lost, "must be 'redistribute' or 'raise'")

    def fitted(self, distributor: "MachineIdDistributor") -> "FittedOptions":
        """Return the options, with the defaults that depend on a distributor."""
        region_ids(self.bits, distributor.region_code)
        safe_guard = min(distributor.safe_guard, self.peer_safe_guard or inf)
        lease_time = safe_guard * LEASE_SHARE if distributor.is_leased else inf
        lead = lead_of(distributor) if self.lead is None else self.lead
        offline = 0.0 if distributor.restart is None else distributor.restart.offline
        if not distributor.interval < lead <= lease_time:
            raise InvalidArgumentError(
                "lead",
                lead,
                f"must be longer than the interval of {distributor.interval:g} s and at most "
                f"{lease_time:g} s (0.9 of the safe guard)",
            )
        given: dict[str, Any] = {**vars(self), "lead": lead}
        return FittedOptions(**given, lease_time=lease_time, offline=offline)


class FittedOptions(LeaseOptions):
    """The options of a lease on a distributor.

    Attributes:
        lease_time: seconds after a renewal during which the id is certainly ours, even if the store
            has lost our record.
        offline: seconds that the fence of a stable id is ahead of the clock, and that the id may be
            used after a renewal, if that is more than usual.
    """

    lease_time: float
    offline: float

    @property
    def takes_another(self) -> bool:
        """Whether the lease takes another id after a loss."""
        return self.on_lost == "redistribute"

    def pause(self, interval: float, attempt: int) -> float:
        """Return seconds until the next renewal: longer after failures, within the lead.

        Args:
            interval: seconds between two renewals.
            attempt: how many attempts have failed in a row.
        """
        if not attempt:
            return interval * random.uniform(1 - JITTER, 1)  # noqa: S311 - no secret
        longest = min(LAST_BACKOFF, self.lead_seconds - interval)
        return back_off(attempt, longest) * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and hides nothing

    @property
    def patience(self) -> float:
        """Seconds that opening tries to reach the store."""
        return USUAL_PATIENCE if self.start_timeout is None else self.start_timeout

    @property
    def use_time(self) -> float:
        """Seconds that the id may be used after a renewal."""
        return max(self.lease_time, self.offline)

    @property
    def lead_seconds(self) -> float:
        """Seconds that the fence is ahead of the clock; known once fitted to a distributor."""
        return max(self.lead or 0.0, self.offline)
