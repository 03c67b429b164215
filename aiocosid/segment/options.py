"""The settings that all segment generators share, validated on creation.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from ..abc import MAX_ID
from ..abc.checks import check_integer, check_seconds
from ..errors import InvalidArgumentError
from .chain import FOREVER
from .pace import QUIET_PERIOD

if TYPE_CHECKING:
    from ..abc.events import Instrument

__all__ = ("MAX_WAITERS", "SegmentChainOptions", "SegmentIdOptions", "SegmentOptions")

MAX_WAITERS: Final = 10_000
"""Callers of one generator; each holds about 2 kB, and more of them than that are an overload."""

FETCH_SHARE = 0.4  # of wait_timeout: two attempts and the pauses between them fit into one wait


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """See `SegmentChainId` for what each means."""

    ttl: float
    wait_timeout: float
    fetch_timeout: float
    close_timeout: float
    quiet_period: float
    max_id: int
    instrument: Instrument | None
    max_waiters: int
    fail_fast: bool | None

    @classmethod
    def checked(
        cls,
        *,
        ttl: float | None = None,
        wait_timeout: float = 5.0,
        fetch_timeout: float | None = None,
        close_timeout: float = 5.0,
        quiet_period: float = QUIET_PERIOD,
        max_id: int = MAX_ID,
        instrument: Instrument | None = None,
        max_waiters: int = MAX_WAITERS,
        fail_fast: bool | None = None,
    ) -> SegmentOptions:
        """Build them, or raise `InvalidArgumentError` for the first one outside its range."""
        check_seconds("wait_timeout", wait_timeout)
        if fetch_timeout is None:
            fetch_timeout = wait_timeout * FETCH_SHARE
        check_seconds("fetch_timeout", fetch_timeout)
        if fetch_timeout > wait_timeout:
            expected = (
                f"a finite number of seconds above 0, at most {wait_timeout:g} (wait_timeout)"
            )
            raise InvalidArgumentError("fetch_timeout", fetch_timeout, expected=expected)
        check_seconds("close_timeout", close_timeout)
        check_seconds("quiet_period", quiet_period)
        if ttl is not None:
            check_seconds("ttl", ttl)
        check_integer("max_id", max_id, at_least=1)
        check_integer("max_waiters", max_waiters, at_least=1)
        if fail_fast is not None and type(fail_fast) is not bool:
            raise InvalidArgumentError("fail_fast", fail_fast, expected="True, False or None")
        return cls(
            ttl=FOREVER if ttl is None else ttl,
            wait_timeout=wait_timeout,
            fetch_timeout=fetch_timeout,
            close_timeout=close_timeout,
            quiet_period=quiet_period,
            max_id=max_id,
            instrument=instrument,
            max_waiters=max_waiters,
            fail_fast=fail_fast,
        )


class SegmentIdOptions(TypedDict, total=False):
    """The options of `SegmentId`."""

    ttl: float | None
    wait_timeout: float
    fetch_timeout: float | None
    close_timeout: float
    max_id: int
    max_waiters: int
    fail_fast: bool | None
    instrument: Instrument | None


class SegmentChainOptions(SegmentIdOptions, total=False):
    """The options of `SegmentChainId`."""

    safe_distance: int
    endurance: float
    max_distance: int
    max_ids_ahead: int
    quiet_period: float
