"""The errors of sequences that a store grants for a second."""

from __future__ import annotations

from ._general import CosIdError

__all__ = ("ClockSkewError", "SequenceExhaustedError", "SequenceUnavailableError")


class ClockSkewError(CosIdError):
    """The clocks of this host and of the store disagree by more than is tolerated.

    Nothing was written: a counter of a second that is far off might be there twice.

    Attributes:
        ahead: seconds that this host is ahead of the store; negative if it is behind.
        tolerance: seconds that are tolerated.
    """

    retryable = True

    def __init__(self, store: str, *, ahead: int, tolerance: int) -> None:
        how = f"{ahead} s ahead of" if ahead > 0 else f"{-ahead} s behind"
        super().__init__(
            f"the clock of this host is {how} that of {store}, more than the {tolerance} s that "
            "are tolerated; set the clocks right"
        )
        self.ahead = ahead
        self.tolerance = tolerance


class SequenceUnavailableError(CosIdError):
    """No sequence of a second could be had in time; the store's error is the ``__cause__``.

    Attributes:
        waited: seconds that the caller waited; 0 if it did not.
    """

    retryable: bool = True

    def __init__(
        self, namespaced_name: str, *, waited: float, reason: str = "", retryable: bool = True
    ) -> None:
        super().__init__(
            f"no sequence of {namespaced_name} came"
            + (f" within {waited:g} s" if waited else "")
            + (f": {reason}" if reason else "")
        )
        self.waited = waited
        self.retryable = retryable


class SequenceExhaustedError(SequenceUnavailableError):
    """The seconds that a caller waited for are used up, by all nodes together."""
