"""What the server can do now: one answer, for load balancers and for people.  No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..integrations.asgi import Health

__all__ = ("Condition", "condition_of")


@dataclass(frozen=True, slots=True)
class Condition:
    """What the server can do now.

    Attributes:
        status: ``up``; ``degraded`` if it serves only a part, or only buffered ids; or ``down``.
        reasons: what is wrong, without the names of generators, hosts and users.
        is_ready: whether a balancer should send requests here.
    """

    status: str
    reasons: tuple[str, ...]
    is_ready: bool


def condition_of(
    health: Health | None, failing: Mapping[str, str], stores: int, *, is_draining: bool
) -> Condition:
    """Return what the server can do.

    Args:
        health: the health of its generators; None while they are not open.
        failing: the reasons why stores do not answer.
        stores: the number of stores.
        is_draining: whether the server is draining.
    """
    reasons = ["draining"] if is_draining else []
    if health is None:
        return Condition("down", (*reasons, "not open"), is_ready=False)
    is_cut_off = 0 < stores <= len(failing)
    states = [{**each, "status": _status(each, is_cut_off)} for each in health.generators.values()]
    if failing:
        what = "the store does" if stores == 1 else f"{len(failing)} of {stores} stores do"
        reasons.append(f"{what} not answer ({', '.join(sorted({*failing.values()}))})")
    reasons += _of_generators(states)
    are_down = [each for each in states if each["status"] == "down"]
    # A quarantine affects all servers: no other server has machine ids either.
    do_wait = bool(are_down) and all("quarantineLeft" in each for each in are_down)
    is_part = do_wait and len(are_down) < len(states)
    is_down = (bool(are_down) and not is_part) or (is_cut_off and not states)
    is_bad = bool(failing) or any(each["status"] != "up" for each in states)
    status = "down" if is_down or is_draining else "degraded" if is_bad else "up"
    return Condition(status, tuple(reasons), is_ready=status != "down")


def _status(state: Mapping[str, Any], is_cut_off: bool) -> Any:  # noqa: ANN401, FBT001 - a text
    """Return a generator's status; while no store answers, buffered ids make it only degraded."""
    has_store = "remaining" in state or "machineId" in state
    if not is_cut_off or not has_store or state["status"] == "down":
        return state["status"]
    return "down" if state.get("remaining") == 0 else "degraded"


def _of_generators(states: list[dict[str, Any]]) -> Iterator[str]:
    ends = [each["quarantineLeft"] for each in states if "quarantineLeft" in each]
    if ends:
        known = [each for each in ends if each is not None]
        until = f" for {max(known):.0f} s" if len(known) == len(ends) else ""
        yield f"{len(ends)} of {len(states)} generators wait in a quarantine{until}"
    for status in ("down", "degraded"):
        found = [each for each in states if each["status"] == status]
        errors = sorted({str(each["error"]) for each in found if each["error"]})
        if found:
            why = f" ({', '.join(errors)})" if errors else ""
            yield f"{len(found)} of {len(states)} generators {status}{why}"
