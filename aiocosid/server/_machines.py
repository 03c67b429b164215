"""Machine ids for programs in other languages: taken, renewed and released by requests.

The store has all of it, so any server can answer any request.  A lease is named by the token that
the store has noted beside the machine id.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from ..abc import DEFAULT_GUARD_INTERVAL, DEFAULT_SAFE_GUARD, InstanceId
from ..machine.cells import MAX_MS
from ..machine.distributor import CellMachineIdDistributor
from ._problems import Problem

if TYPE_CHECKING:
    from ._service import Service

__all__ = ("Lease", "Release", "Renew", "Take", "release", "renew", "take")

RENEWALS: Final = 4  # in a safe guard, at least
STRICT: Final = ConfigDict(strict=True, extra="forbid", frozen=True)
Name = Annotated[str, Field(min_length=1, max_length=100)]
Time = Annotated[int, Field(ge=-1, le=MAX_MS)]


class Holder(BaseModel):
    """Who asks.

    Attributes:
        instance_id: the instance; no other one has that text.
        stable: whether the instance keeps its machine id when it is closed.
        safe_guard: seconds without a renewal after which the id may go to another instance.
    """

    model_config = STRICT

    instance_id: Name
    stable: bool = False
    safe_guard: Annotated[float, Field(gt=0, le=10**9, strict=False)] = DEFAULT_SAFE_GUARD


class Take(Holder):
    """Asks for a machine id.

    Attributes:
        bits: the width of the machine ids, the same for all instances of the namespace.
        now_ms: the instance's clock, unix time in milliseconds.
        latest_ms: an id whose former owner's time is later is taken only if there is no other; the
            instance's clock without it.
    """

    bits: Annotated[int, Field(ge=1, le=31)]
    now_ms: Annotated[int, Field(ge=0, le=MAX_MS)]
    latest_ms: Time | None = None


class Renew(Holder):
    """Renews a machine id.

    Attributes:
        lease: the lease that `Take` returned.
        now_ms: the instance's clock, unix time in milliseconds.
        mark_ms: no id is issued with a later time before the next renewal; the next owner begins
            above it.
    """

    lease: Name
    now_ms: Annotated[int, Field(ge=0, le=MAX_MS)]
    mark_ms: Time


class Release(Holder):
    """Gives a machine id back.

    Attributes:
        lease: the lease that `Take` returned.
        last_ms: the time of the last id that was issued; -1 for none.
    """

    lease: Name
    last_ms: Time = -1


class Lease(BaseModel):
    """A machine id that was taken.

    Attributes:
        machine_id: the number.
        above_ms: the time of every id has to be above it, unix time in milliseconds.
        lease: names the lease in later requests.
        safe_guard: seconds without a renewal after which the id may go to another instance.
    """

    machine_id: int
    above_ms: int
    lease: str
    safe_guard: float


async def take(service: Service, namespace: str, asked: Take) -> Lease:
    """Take a machine id; an instance that holds one gets the same again, under a new lease.

    Raises:
        Problem: the store keeps no leases.
        CosIdError: as for `MachineIdDistributor.distribute`.
    """
    machine = _distributor(service, namespace, asked)
    latest_ms = asked.now_ms if asked.latest_ms is None else asked.latest_ms
    grant = await machine.distribute(asked.bits, now_ms=asked.now_ms, latest_ms=latest_ms)
    return Lease(
        machine_id=grant.machine_id,
        above_ms=grant.floor_ms,
        lease=machine.token,
        safe_guard=asked.safe_guard,
    )


async def renew(service: Service, namespace: str, machine_id: int, asked: Renew) -> None:
    """Renew a machine id.

    Raises:
        Problem: the store keeps no leases.
        CosIdError: as for `MachineIdDistributor.guard`.
    """
    machine = _distributor(service, namespace, asked, lease=asked.lease)
    await machine.guard(machine_id, now_ms=asked.now_ms, mark_ms=asked.mark_ms)


async def release(service: Service, namespace: str, machine_id: int, asked: Release) -> None:
    """Give a machine id back; one that another lease has is left alone.

    Raises:
        Problem: the store keeps no leases.
        CosIdError: as for `MachineIdDistributor.revert`.
    """
    machine = _distributor(service, namespace, asked, lease=asked.lease)
    await machine.revert(machine_id, last_ms=asked.last_ms)


def _distributor(
    service: Service, namespace: str, holder: Holder, *, lease: str = ""
) -> CellMachineIdDistributor:
    machine = service.store.machine_id_distributor(
        namespace=namespace,
        instance_id=InstanceId(holder.instance_id, stable=holder.stable),
        safe_guard=holder.safe_guard,
        interval=min(DEFAULT_GUARD_INTERVAL, holder.safe_guard / RENEWALS),
    )
    if not isinstance(machine, CellMachineIdDistributor) or not machine.keeps_marks:
        detail = "the server's store keeps no leases of machine ids"
        raise Problem(HTTPStatus.NOT_IMPLEMENTED, "not-supported", detail)
    machine.resume(lease)
    return machine
