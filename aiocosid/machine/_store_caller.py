"""Calls a store of machine ids: each call has its end, each failure is counted and told."""

from __future__ import annotations

import logging
import random
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from .._life.component import Component
from .._life.foreign_calls import call_bounded
from ..errors import (
    ClosedError,
    CosIdError,
    MachineIdQuarantineError,
)
from ..events import Event, MachineIdGuardFailed, MachineIdsQuarantined

if TYPE_CHECKING:
    from ..abc import Clock, MachineIdDistributor
    from ._options import LeaseOptions

__all__ = ("StoreCaller",)

logger = logging.getLogger("aiocosid")

FIRST_BACKOFF: Final = 0.05  # seconds after the first failure, doubled by each further one
LAST_BACKOFF: Final = 2.0  # seconds; an outage is over for us at most this long after it ended
JITTER: Final = 0.1  # of an interval: many processes started at once do not stay in step


class StoreCaller(Component):
    """What a lease needs to talk to its distributor, and to wait between two calls."""

    __slots__ = (
        "_call_by",
        "_failures",
        "_last_error",
        "_life",
        "_options",
        "_quarantine_ends_at",
        "distributor",
    )

    def __init__(
        self, distributor: MachineIdDistributor, options: LeaseOptions, clock: Clock | None
    ) -> None:
        self.distributor = distributor
        self._options = options
        super().__init__(clock)
        self._reset()

    def _reset(self) -> None:
        self._life = object()  # another one in each
        self._call_by = inf  # by the monotonic clock; what opening takes has an end
        self._last_error: Exception | None = None
        self._failures = 0
        self._quarantine_ends_at: float | None = None  # by the monotonic clock, as far as is known

    @property
    def namespace(self) -> str:
        """The namespace in which the machine id is ours."""
        return self.distributor.namespace

    @property
    def close_timeout(self) -> float:
        """Seconds that closing may take."""
        return self._options.close_timeout

    def _label(self) -> str:
        return f"{type(self).__name__} {self.distributor.namespace}"

    async def _call(self, method: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - any call
        """Call the store once, to its end or its timeout; returns an error, and raises none."""
        life = self._life
        answer = await call_bounded(
            partial(method, *args, **named),
            store=self.distributor.store,
            clock=self._clock,
            within=min(self._options.call_timeout, self._call_by - self._clock.monotonic()),
            shield=True,
        )
        if self._life is not life:  # it has outlasted the closing
            return ClosedError(self._label())
        return answer

    def _interval(self) -> float:
        return self.distributor.interval * random.uniform(1 - JITTER, 1)  # noqa: S311 - no secret

    def _pause(self, attempt: int) -> float:
        """Return seconds until the next attempt: longer each time, never beyond the margin."""
        longest = min(LAST_BACKOFF, self._options.lead_seconds - self.distributor.interval)
        delay: float = min(longest, FIRST_BACKOFF * 2 ** min(attempt - 1, 10))
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and hides nothing

    def _note(self, error: CosIdError, attempt: int) -> None:
        self._last_error = error
        self._failures += 1
        if attempt == 1:
            logger.warning("%s: %s", self._label(), error)
        self._emit(MachineIdGuardFailed, error=error, attempt=attempt)
        if isinstance(error, MachineIdQuarantineError):
            is_first = self._quarantine_ends_at is None
            self._quarantine_ends_at = self._clock.monotonic() + error.seconds_left
            if is_first:
                self._emit(MachineIdsQuarantined, seconds_left=error.seconds_left)

    def _quarantine_left(self) -> float:
        if self._quarantine_ends_at is None:
            return 0.0
        return max(0.0, self._quarantine_ends_at - self._clock.monotonic())

    def _emit(self, kind: type[Event], **facts: object) -> None:
        if self._options.instrument is None:
            return
        about = {"namespace": self.namespace, "name": self.distributor.instance_id.text}
        try:
            self._options.instrument.on_event(kind(**about, **facts))  # type: ignore[arg-type]  # facts
        except Exception:
            logger.exception("%s: the instrument failed", self._label())
