"""Validates the answers of a store of sequences.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc import SecondFenced, SecondSpent, SequenceGrant
from ..errors import CosIdError, StoreError

if TYPE_CHECKING:
    from typing import TypeGuard

    from ..abc import SequenceDistributor, SequenceReply

__all__ = ("validated_reply",)


def validated_reply(
    answer: object, second: int, above: int, distributor: SequenceDistributor
) -> SequenceReply | CosIdError:
    """Return a valid answer, or an error if the store answered something impossible.

    Args:
        answer: the answer.
        second: the requested second.
        above: the highest sequence that the store had granted of that second before.
        distributor: the distributor that answered.
    """
    if isinstance(answer, CosIdError):
        return answer
    if not _is_reply(answer):
        remedy = "return a SequenceGrant from the distributor"
        return StoreError(distributor.store, f"it answered {answer!r}", remedy=remedy)
    if not isinstance(answer, SequenceGrant) or (
        answer.second == second
        and max(0, above) < answer.first <= answer.last <= distributor.max_sequence
    ):
        return answer
    error = StoreError(
        distributor.store,
        f"{answer} came for second {second} of {distributor.namespaced_name}: its "
        "counter was lost or is damaged, and nothing more of that second is used",
        remedy="try again in the next second",
    )
    error.retryable = True
    return error


def _is_reply(answer: object) -> TypeGuard[SequenceReply]:
    """Return whether it is one of the reply types, with integers only."""
    if isinstance(answer, SequenceGrant):
        return _are_integers(answer.second, answer.first, answer.last)
    if isinstance(answer, SecondFenced):
        return _are_integers(answer.opens, answer.now)
    return isinstance(answer, SecondSpent) and _are_integers(answer.second)


def _are_integers(*numbers: object) -> bool:
    return all(type(each) is int for each in numbers)
