"""Ids of a generator that a server has, taken as blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..abc import MAX_ID
from ..abc.checks import check_integer, check_seconds
from .blocks import MAX_BLOCK, BlockDistributor
from .generator import SegmentGenerator
from .options import MAX_WAITERS, SegmentOptions
from .pace import ENDURANCE, Pace

if TYPE_CHECKING:
    from ..abc import Clock
    from ..abc.events import Instrument
    from .blocks import BlockSource

__all__ = ("BLOCK", "MAX_AGE", "RemoteId")

BLOCK: Final = 100  # ids
MAX_AGE: Final = 1.0  # seconds


class RemoteId(SegmentGenerator):
    """Ids of a generator on an aiocosid server, such as the broker of a host.

    It takes blocks of ids before they are needed, so most calls send nothing.  All processes
    together need one machine id, the server's.  Ids of one process rise; ids of several processes
    are nearly in order, because no id is handed out later than ``max_age`` after its block was
    requested.

    Open it with ``async with``, or with ``await task_group.start(remote.run)``; either returns when
    the first block is in hand.  It belongs to the event loop it was opened on.
    """

    __slots__ = ()

    def __init__(
        self,
        source: BlockSource,
        *,
        namespace: str,
        name: str,
        block: int = BLOCK,
        max_age: float | None = MAX_AGE,
        endurance: float = ENDURANCE,
        wait_timeout: float = 5.0,
        fetch_timeout: float | None = None,
        close_timeout: float = 5.0,
        max_id: int = MAX_ID,
        max_waiters: int = MAX_WAITERS,
        fail_fast: bool | None = None,
        instrument: Instrument | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            source: the store of the server, as ``open_store("aiocosid+unix:///...")`` returns it.
            namespace: names it in events and statistics.
            name: the generator's name on the server.
            block: ids that one request asks for while few are needed, 1 to 10,000.  Two blocks are
                kept ahead at rest, and more at a higher rate.
            max_age: seconds after their request when ids in hand are dropped, because their time
                would be too old; None for never.
            endurance: seconds that the ids in hand last at the measured rate while the server is
                down; at most ``max_age``; with a shorter ``max_age`` the default is ``max_age``.
            wait_timeout: maximum seconds that a caller waits for ids.
            fetch_timeout: seconds for one call to the server, at most ``wait_timeout``; None for
                two fifths of it.
            close_timeout: seconds that `aclose` waits for a call under way before it cancels the
                call.
            max_id: the highest id ever handed out, 1 to 2^63-1; 2^53-1 for JavaScript.
            max_waiters: how many callers may wait at a time, 1 or more; the next one fails at once.
            fail_fast: whether callers fail as soon as two calls to the server have failed in a row,
                instead of after ``wait_timeout``.  None follows the provider.
            instrument: receives events.
            clock: time; the system's by default.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        check_integer("block", block, at_least=1, at_most=MAX_BLOCK)
        if max_age is not None:
            check_seconds("max_age", max_age)
        options = SegmentOptions.checked(
            ttl=max_age,
            wait_timeout=wait_timeout,
            fetch_timeout=fetch_timeout,
            close_timeout=close_timeout,
            max_id=max_id,
            instrument=instrument,
            max_waiters=max_waiters,
            fail_fast=fail_fast,
        )
        pace = Pace.checked(step=block, endurance=endurance, ttl=options.ttl, ttl_name="max_age")
        distributor = BlockDistributor(source, namespace=namespace, name=name, step=block)
        super().__init__(distributor, options, pace, clock)
