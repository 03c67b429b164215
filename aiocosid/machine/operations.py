"""What the holder of a machine id requests from a store, as values that a server also accepts.

The rules decide in the process that reads the cells: the caller on its own store, otherwise the
server.  Pure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, TypeAlias

from ..abc import MachineGrant
from ..errors import InvalidArgumentError
from . import rules
from .cells import MachineRecord, MachineSlot, ReadRequest, token_of
from .losses import Requester
from .rules import Caller, Decision, GrantReceipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cells import Snapshot

__all__ = (
    "Operation",
    "ReleaseOperation",
    "RenewOperation",
    "Renewed",
    "TakeOperation",
    "Took",
    "give_back",
    "hand_out",
    "renew",
    "revealed",
)

SAMPLE: Final = 8  # takeable ids in the first read; more processes rarely ask at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Requester):
    """A call of an instance about its machine id."""

    def caller(self, nonce: str) -> Caller:
        """Return the caller as the rules know it.

        Args:
            nonce: a fresh name.
        """
        who = {each.name: getattr(self, each.name) for each in fields(Requester)}
        return Caller(**who, nonce=nonce)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOperation(Operation):
    """Requests a machine id.

    Attributes:
        bits: the width.
        now_ms: the caller's wall clock.
        latest_ms: the highest floor for which the caller need not wait.
        token: names the call; a repeated call has the same token.
        former: the token of an earlier call of the same object; empty for none.
        offline_ms: how long the caller issues ids without the store; 0 for a usual caller.
        beside_cosid: whether it may do so even if CosId holds ids of the namespace.
        over: names a renewal whose process has ended, as the caller knows; empty for none.
        region_code: the region of the namespace in this store; 1 for no regions.
    """

    bits: int
    now_ms: int
    latest_ms: int
    token: str
    former: str = ""
    offline_ms: int = 0
    beside_cosid: bool = False
    over: str = ""
    region_code: int = 1

    @property
    def need(self) -> ReadRequest:
        """What is read first."""
        return ReadRequest(self.instance, is_complete=True, sample=SAMPLE, namespaces=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """The answer to `TakeOperation`.

    Attributes:
        machine_id: the id; -1 if none was taken because another process may use it.
        floor_ms: the time that ids must be above.
        is_fenced: whether a fence may be the reason for that floor.
        token: the token of the call, as it is stored.
        stamp_ms: the stamp that was written.
        former: names the last write to the id before; empty if it was another instance's.
        is_again: whether that write was made by this very call, whose answer was lost.
        twin_ms: how long the process of this instance that wrote last may issue ids without the
            store; 0 if there is no such process.
        receipt: a server's proof of the lease; empty for none.
    """

    machine_id: int = -1
    floor_ms: int = -1
    is_fenced: bool = True
    token: str = ""
    stamp_ms: int = -1
    former: str = ""
    is_again: bool = False
    twin_ms: int = 0
    receipt: str = ""

    @property
    def grant(self) -> MachineGrant:
        """What the caller was given."""
        return MachineGrant(self.machine_id, self.floor_ms, is_fenced=self.is_fenced)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewOperation(Operation):
    """Renews a machine id.

    Attributes:
        machine_id: the id.
        now_ms: the caller's wall clock.
        fence_ms: no id with a later time will be issued before the next renewal.
        token: the token of the call that got the id.
        asked: the token of a later call, whose answer may have been lost; empty for none.
        bits: the width, if the caller has taken the id; otherwise 0.
        requested_ms: when it took the id, by its own clock.
        is_valid: whether the lease is certainly still valid, so that this renewal may reclaim the
            id during a quarantine.
        receipt: a server's proof of that; empty for none.
        region_code: the encoded region (its bits behind a leading 1), if the caller has taken the
            id; otherwise 1, which means no regions.
    """

    machine_id: int
    now_ms: int
    fence_ms: int
    token: str
    asked: str = ""
    bits: int = 0
    requested_ms: int = 0
    is_valid: bool = False
    receipt: str = ""
    region_code: int = 1

    @property
    def need(self) -> ReadRequest:
        """What is read first."""
        return ReadRequest(self.instance, self.machine_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The answer to `RenewOperation`.

    Attributes:
        renewal: names the renewal; empty if the id also has another owner.
        found_ms: the caller's stamp before; -1 if it had none.
        stamp_ms: the stamp that was written.
        receipt: a server's new proof of the lease; empty for none.
    """

    renewal: str = ""
    found_ms: int = -1
    stamp_ms: int = -1
    receipt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOperation(Operation):
    """Releases a machine id.

    Attributes:
        machine_id: the id.
        last_ms: no id with a later time was issued; -1 if none was.
        token: the token of the call that got the id.
    """

    machine_id: int
    last_ms: int
    token: str

    @property
    def need(self) -> ReadRequest:
        """What is read first."""
        return ReadRequest(self.instance, self.machine_id)


IsOver: TypeAlias = "Callable[[str], bool]"


def hand_out(
    asked: TakeOperation, snapshot: Snapshot, caller: Caller, *, spread: int, is_over: IsOver
) -> Decision:
    """Grant a machine id, unless a process with another ``state_dir`` may use it; see `Took`.

    Taking it then would stop that process, and make the caller wait until the fence has passed.

    Args:
        asked: the operation.
        snapshot: what was read.
        caller: the caller.
        spread: the same as for `rules.hand_out`.
        is_over: tells whether the process that wrote last has ended, by the name of its write.
    """
    if asked.offline_ms and not asked.beside_cosid:
        if not snapshot.is_complete:
            return Decision(need=ReadRequest(asked.instance, is_complete=True))
        if (peer := rules.peer_of(snapshot, asked.instance)) is not None:
            return Decision(error=_beside(asked, peer))
    token = caller.signed(asked.token)
    decision = rules.hand_out(
        snapshot,
        caller,
        bits=asked.bits,
        now_ms=asked.now_ms,
        latest_ms=asked.latest_ms,
        token=token,
        spread=spread,
        region_code=asked.region_code,
    )
    grant: MachineGrant | None = decision.answer
    if grant is None:
        return decision
    number = grant.machine_id
    slot = snapshot.slots.get(number, MachineSlot())
    former = slot.renewal_of(asked.instance, number)
    is_ours = token_of(former) in {token, asked.former} - {""}
    if not is_ours and (twin_ms := _twin_ms(asked, slot)) and former and not is_over(former):
        # With the token, a caller of a server could release what the other process has.
        shown = _hidden(former) if caller.is_guest else former
        return Decision(answer=Took(former=shown, twin_ms=twin_ms))
    decision.answer = Took(
        machine_id=number,
        floor_ms=grant.floor_ms,
        is_fenced=grant.is_fenced,
        token=token,
        stamp_ms=decision.changes.slots[number].stamp_ms,
        former=former,
        is_again=token_of(former) == token,
    )
    return decision


def _hidden(renewal: str) -> str:
    """Return the name of a renewal with a digest in place of the token; see `revealed`."""
    token, blank, rest = renewal.partition(" ")
    return hashlib.sha256(token.encode()).hexdigest() + blank + rest


def revealed(former: str, *known: str) -> str:
    """Return the name of a renewal with its token, if the token is one of the caller's own.

    Args:
        former: what a server has answered.
        known: the renewals that the caller knows; each may hold alternatives, separated by ``|``.
    """
    for renewal in "|".join(known).split("|"):
        token = renewal.partition(" ")[0]
        _, blank, rest = former.partition(" ")
        if former == _hidden(f"{token}{blank}{rest}"):
            return f"{token}{blank}{rest}"
    return former


def _beside(asked: TakeOperation, peer: str) -> InvalidArgumentError:
    """Return the error for an offline instance where CosId may grant its id to another process."""
    rule = (
        f"must be 0 while CosId's own instance {peer!r} uses this namespace; set "
        "offline_beside_cosid=True if CosId never takes over another instance's machine id there"
    )
    return InvalidArgumentError("offline", asked.offline_ms / 1000, rule)


def _twin_ms(asked: TakeOperation, slot: MachineSlot) -> int:
    left_ms = slot.fence_ms - asked.now_ms
    usual_ms = min(asked.guard_ms, asked.offline_ms or asked.guard_ms)
    # No other fence is that far ahead.
    return left_ms if left_ms > 0 and slot.fence_ms - slot.stamp_ms >= usual_ms else 0


def renew(asked: RenewOperation, snapshot: Snapshot, caller: Caller) -> Decision:
    """Renew a machine id; see `Renewed`."""
    number = asked.machine_id
    before = snapshot.slots.get(number, MachineSlot())
    token = _known(asked.token, before, caller)
    taken = GrantReceipt(number, asked.requested_ms, asked.bits, token, asked.region_code)
    decision = rules.renew(
        snapshot,
        caller,
        number,
        now_ms=asked.now_ms,
        fence_ms=asked.fence_ms,
        token=_known(asked.asked, before, caller, otherwise=taken.token),
        taken=taken if asked.is_valid and asked.bits else None,
    )
    slot = decision.changes.slots.get(number, before)
    decision.answer = Renewed(
        renewal=slot.renewal_of(asked.instance, number),
        found_ms=_stamp_ms(before, asked.instance),
        stamp_ms=_stamp_ms(slot, asked.instance),
    )
    return decision


def give_back(asked: ReleaseOperation, snapshot: Snapshot, caller: Caller) -> Decision:
    """Release a machine id."""
    number = asked.machine_id
    token = _known(asked.token, snapshot.slots.get(number, MachineSlot()), caller)
    return rules.give_back(snapshot, caller, number, last_ms=asked.last_ms, token=token)


def _known(token: str, slot: MachineSlot, caller: Caller, *, otherwise: str | None = None) -> str:
    """Return a token as it is stored, with or without a guest's access, if it is the id's."""
    found = (slot.record or MachineRecord()).token
    if token and found in {token, caller.signed(token)}:
        return found
    return token if otherwise is None else otherwise


def _stamp_ms(slot: MachineSlot, instance: str) -> int:
    return next((each.stamp_ms for each in slot.owners if each.instance == instance), -1)
