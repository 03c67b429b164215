"""Machine ids for clients: operations that this server decides by the rules, on its store.

The store holds all state, so any server can answer any request.  A lease is identified by the token
that the store has recorded with the machine id.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from .._life.clock import SYSTEM_CLOCK
from ..abc import DEFAULT_SAFE_GUARD, InstanceId
from ..abc.checks import MAX_MACHINE_BITS, check_integer
from ..abc.machines import region_ids
from ..errors import InvalidArgumentError
from ..machine import operations as ops
from ..machine.cells import MAX_MS
from ..machine.distributor import CellMachineIdDistributor, guard_ms_of
from ._problems import Problem
from ._receipts import Lasting, is_signed, receipt_of, times_of
from ._tokens import TokenScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..abc import Machine
    from ._service import Service
    from ._tokens import Access

__all__ = (
    "Holder",
    "Lease",
    "Release",
    "Renew",
    "Repaired",
    "Take",
    "owner_of",
    "release",
    "renew",
    "repair",
    "take",
)

O = TypeVar("O", ops.TakeOperation, ops.RenewOperation, ops.ReleaseOperation)  # noqa: E741 - an operation

OWNER_DIGITS: Final = 16
LONGEST_RECEIPT_MS: Final = 3_600_000
"""The maximum validity of a receipt in milliseconds; it is short because a receipt could still be
shown after the release.
"""

FURTHER: Final = " "
"""The separator between the receipts of chained servers, each of which asks the next."""

_TOKEN: Final = re.compile("[0-9A-Za-z_-]{1,64}")
STRICT: Final = ConfigDict(strict=True, extra="forbid", frozen=True)
Name = Annotated[str, Field(min_length=1, max_length=100)]
Time = Annotated[int, Field(ge=-1, le=MAX_MS)]


class Holder(BaseModel):
    """The instance that sends a request.

    Attributes:
        instance_id: the instance's id; no other instance has the same.
        stable: whether the instance keeps its machine id when it is closed.
        safe_guard: seconds without a renewal after which the id may go to another instance.
    """

    model_config = STRICT

    instance_id: Name
    stable: bool = False
    safe_guard: Annotated[float, Field(gt=0, le=10**9, strict=False)] = DEFAULT_SAFE_GUARD


class Take(Holder):
    """A request for a machine id.

    Attributes:
        bits: the width of the machine ids, the same for all instances of the namespace.
        now_ms: the instance's clock, unix time in milliseconds.
        latest_ms: an id whose former owner's time is later is taken only if there is no other; by
            default the instance's clock.
        region: the region of the server's store, if the namespace has regions.
        region_bits: how many of the top bits hold the region.
    """

    bits: Annotated[int, Field(ge=1, le=31)]
    now_ms: Annotated[int, Field(ge=0, le=MAX_MS)]
    latest_ms: Time | None = None
    region: Annotated[int, Field(ge=0)] | None = None
    region_bits: Annotated[int, Field(ge=0, lt=MAX_MACHINE_BITS)] = 0


class Renew(Holder):
    """A request to renew a machine id.

    Attributes:
        lease: the lease that `Take` returned.
        now_ms: the instance's clock, unix time in milliseconds.
        fence_ms: no id with a later time is issued before the next renewal; the next owner begins
            above it.
    """

    lease: Name
    now_ms: Annotated[int, Field(ge=0, le=MAX_MS)]
    fence_ms: Time


class Release(Holder):
    """A request to release a machine id.

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
        above_ms: the time of every id must be above this value, unix time in milliseconds.
        lease: identifies the lease in later requests.
        safe_guard: seconds without a renewal after which the id may go to another instance.
    """

    machine_id: int
    above_ms: int
    lease: str
    safe_guard: float


class Repaired(BaseModel):
    """The result of a repair.

    Attributes:
        repaired: the machine ids that were repaired; they can be taken again.
        held: the machine ids that were left unchanged, because an instance holds them.
    """

    repaired: list[int]
    held: list[int]


async def take(
    service: Service, access: Access, namespace: str, asked: ops.TakeOperation
) -> ops.Took:
    """Take a machine id; an instance that holds one gets the same id under a new lease.

    Raises:
        Problem: the store keeps no leases.
        CosIdError: as for `MachineIdDistributor.distribute`.
    """
    region_ids(asked.bits, asked.region_code)
    if not _TOKEN.fullmatch(asked.token):
        raise InvalidArgumentError("token", asked.token, "must be 1 to 64 letters and digits")
    asked = guest(service, access, asked)
    took = await machines_of(service, namespace, asked).ask_take(asked)
    if not service.receipt_key or took.twin_ms:
        return took
    lease = Lasting(
        namespace=namespace,
        owner=asked.owner,
        instance=asked.instance,
        machine_id=took.machine_id,
        bits=asked.bits,
        region_code=asked.region_code,
        requested_ms=asked.clock_ms,
        token=took.token,
    )
    return replace(took, receipt=_receipt(service, lease, asked, took.receipt))


async def renew(
    service: Service, access: Access, namespace: str, asked: ops.RenewOperation
) -> ops.Renewed:
    """Renew a machine id.

    Raises:
        Problem: the store keeps no leases.
        CosIdError: as for `MachineIdDistributor.renew`.
    """
    if asked.bits:
        ids = region_ids(asked.bits, asked.region_code)
        check_integer("machine_id", asked.machine_id, at_least=ids[0], at_most=ids[-1])
    asked = guest(service, access, asked)
    ours, _, further = asked.receipt.partition(FURTHER)
    until_ms, requested_ms = times_of(ours)
    lease = Lasting.of(namespace, asked.owner, replace(asked, requested_ms=requested_ms))
    if not is_signed(service.receipt_key, lease, ours):
        until_ms = -1
    if access.token is not None or not access.allows(TokenScope.ADMIN):
        # Without a receipt, nothing proves that the id was taken, or when.
        asked = replace(
            asked,
            is_valid=asked.is_valid and until_ms >= asked.clock_ms,
            requested_ms=max(requested_ms, 0),
        )
    machines = machines_of(service, namespace, asked)
    done = await machines.ask_renew(replace(asked, receipt=further))
    # The caller has renewed, so it holds the id; only its receipt says when the id was taken.
    receipt = "" if until_ms < 0 else _receipt(service, lease, asked, done.receipt)
    return replace(done, receipt=receipt)


def _receipt(service: Service, lease: Lasting, asked: ops.Operation, further: str) -> str:
    """Return a receipt, followed by that of the next server, if this server's store is one."""
    until_ms = asked.clock_ms + min(asked.guard_ms, LONGEST_RECEIPT_MS)
    ours = receipt_of(service.receipt_key, lease, until_ms)
    return f"{ours}{FURTHER}{further}" if further else ours


async def release(
    service: Service, access: Access, namespace: str, asked: ops.ReleaseOperation
) -> None:
    """Release a machine id; an id that another lease holds is left unchanged.

    Raises:
        Problem: the store keeps no leases.
        CosIdError: as for `MachineIdDistributor.release`.
    """
    await machines_of(service, namespace, asked).ask_release(guest(service, access, asked))


async def repair(service: Service, access: Access, namespace: str) -> Sequence[Machine]:
    """Repair machine ids whose times are far ahead.

    Raises:
        Problem: the caller may not do this.
        CosIdError: as for `Store.repair_machines`.
    """
    service.check(access, TokenScope.ADMIN, namespace)
    service.note(access, f"repair the machine ids of {namespace!r}")
    return await service.store.repair_machines(namespace=namespace)


def guest(service: Service, access: Access, asked: O) -> O:
    """Return an operation in the form that the rules accept from this caller."""
    return replace(
        asked,
        is_guest=True,
        owner=owner_of(access, asked.owner),
        least_guard_ms=max(asked.least_guard_ms, guard_ms_of(service.limits.safe_guard)),
        clock_ms=SYSTEM_CLOCK.now_ms(),
    )


def owner_of(access: Access, via: str = "") -> str:
    """Return the access's name to record with a machine id; empty for a caller without limits.

    Args:
        access: the caller's access.
        via: the client for which the caller asks, if the caller is a server.
    """
    if access.token is None:
        return via
    name = hashlib.sha256(access.token.name.encode()).hexdigest()[:OWNER_DIGITS]
    return f"{via}.{name}" if via else name


def machines_of(service: Service, namespace: str, asked: ops.Operation) -> CellMachineIdDistributor:
    """Return the distributor that sends operations to the server's store.

    Raises:
        Problem: the store keeps no leases.
        CosIdError: the namespace or the instance is not valid, or there is no such store.
    """
    who = InstanceId(asked.instance, stable=asked.stable)
    found = service.store.machine_id_distributor(namespace=namespace, instance_id=who)
    if not isinstance(found, CellMachineIdDistributor) or not found.keeps_fences:
        detail = "the server's store keeps no leases of machine ids"
        raise Problem(HTTPStatus.NOT_IMPLEMENTED, "not-supported", detail)
    return found
