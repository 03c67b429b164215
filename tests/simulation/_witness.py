"""Calls a generator, and checks each call."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from aiocosid.errors import CosIdError

from ._faults import draw_between

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiocosid.abc import IdGenerator

    from ._ledger import Parse
    from ._node import Node

__all__ = ("Call", "Witness")

_T = TypeVar("_T")

Made: TypeAlias = "tuple[int, int, int]"
"""Of an id: the machine id, the time in it, and how often that was granted when it was made."""


class Call:
    """One call under way.

    Attributes:
        what: for the message.
        node: where it runs.
        deadline: when it has to have ended, in virtual seconds.
        is_done: whether it has.
    """

    __slots__ = ("deadline", "is_done", "node", "process", "what")

    def __init__(self, node: Node, what: str, deadline: float) -> None:
        self.node = node
        self.process = node._current()
        self.what = what
        self.deadline = deadline
        self.is_done = False


class Moment:
    """When and to whom ids were handed out.

    Attributes:
        who: the process.
        at: virtual seconds.
    """

    __slots__ = ("at", "who")

    def __init__(self, who: str, at: float) -> None:
        self.who = who
        self.at = at

    def __str__(self) -> str:
        return f"{self.who} at {self.at:.4f} s"


class Line:
    """Who has to wait is served in the order in which they came."""

    __slots__ = ("_began", "_count", "_served")

    def __init__(self) -> None:
        self._count = 0
        self._began: dict[int, float] = {}
        self._served: list[tuple[int, int]] = []

    def join(self, now: float) -> int:
        """Begin a call; returns its place."""
        self._count += 1
        self._began[self._count] = now
        return self._count

    def check(
        self, place: int, reply: object, now: float, fail: Callable[[str], object]
    ) -> None:  # fmt: skip
        """Look at what a call got, if it had to wait."""
        if now == self._began[place]:
            return
        lowest = min(cast("list[int]", reply)) if isinstance(reply, list) else reply
        assert isinstance(lowest, int)
        for later, its_lowest in self._served:
            if later > place and its_lowest < lowest:
                fail(f"a caller that came later got {its_lowest}, before one that got {lowest}")
        self._served.append((place, lowest))

    def leave(self, place: int) -> None:
        """End a call."""
        del self._began[place]
        oldest = min(self._began, default=self._count)
        self._served = [each for each in self._served if each[0] > oldest]


class Witness:
    """Offers a generator's three calls, and checks what comes of each.

    * It ends by its deadline, with ids or a `CosIdError`; time in which the process was stopped
      does not count.
    * Its ids are above all ids that were returned before the call began; `next_ids` gives exactly
      as many as were asked for, rising.
    * If it is to be fair, callers that have to wait are served in the order in which they came.
    * No id comes twice, in the whole world.
    * A machine id in it was the process's at that time, and its lease had not ended.
    """

    def __init__(
        self,
        node: Node,
        generator: IdGenerator,
        *,
        deadline: float,
        parse: Parse | None,
        fair: bool = False,
    ) -> None:
        """See `Node.watch`."""
        self.generator = generator
        self._node = node
        self._world = node.world
        self._deadline = deadline
        self._parse = parse
        self._line = Line() if fair else None
        self._highest = 0
        self.spoils: tuple[list[tuple[int, list[int]]], int] | None = None  # in a child
        about = generator.statistics()
        self._namespace = about.namespace
        self._counter = f"{about.namespace}.{about.name}"

    async def next_id(self) -> int:
        """Await the next id."""
        floor = self._highest
        new_id = await self._watched("next_id()", self.generator.next_id)
        self._returned([new_id], floor)
        await self._use([new_id])
        return new_id

    async def next_ids(self, n: int) -> list[int]:
        """Await the next ``n`` ids."""
        floor = self._highest
        ids = await self._watched(f"next_ids({n})", lambda: self.generator.next_ids(n))
        if len(ids) != n:
            self._world.fail(f"next_ids({n}) gave {len(ids)} ids")
        self._returned(ids, floor)
        await self._use(ids)
        return ids

    def next_id_nowait(self) -> int:
        """Take the next id, if one is in hand."""
        floor = self._highest
        try:
            new_id = self.generator.next_id_nowait()
        except CosIdError as error:
            self._errs("next_id_nowait()", error)
            raise
        self._returned([new_id], floor)
        self._used(self._made([new_id]))
        return new_id

    def keep(self, ids: Sequence[int]) -> None:
        """Have the parent told what this child got."""
        if self.spoils is not None:
            kept, number = self.spoils
            kept.append((number, list(ids)))

    def robbed(self, ids: Sequence[int], by: Moment) -> None:
        """Take note of what a child got, which is another process."""
        self._world.note(by.who, "gets", _span(ids))
        self._world.ledger.handed_out(self._counter, ids, by)
        if self._parse is not None:
            for new_id in ids:
                machine_id, at_ms = self._parse(new_id)
                self._world.ledger.emitted(self._namespace, machine_id, by.who, at_ms)

    async def _watched(self, what: str, call: Callable[[], Awaitable[_T]]) -> _T:
        world, line = self._world, self._line
        place = None if line is None else line.join(world.loop.time())
        span = self._node._virtual(self._deadline)
        record = Call(self._node, what, world.loop.time() + span)
        world.expect(record)
        try:
            reply = await call()
            if line is not None and place is not None:
                line.check(place, reply, world.loop.time(), world.fail)
            return reply
        except CosIdError as error:
            self._errs(what, error)
            raise
        except Exception as error:
            world.fail(f"{what} on {self._node.name} raised {error!r}, which is no CosIdError")
            raise
        finally:
            record.is_done = True
            if line is not None and place is not None:
                line.leave(place)

    def _errs(self, what: str, error: CosIdError) -> None:
        if not self._world.is_over:
            self._world.errors[type(error).__name__] += 1
            self._world.note(self._node.name, "errs", f"{what}: {type(error).__name__}")

    def _returned(self, ids: Sequence[int], floor: int) -> None:
        if self.spoils is not None:
            self.keep(ids)
            return
        if self._world.is_over or not ids:
            return
        who = self._node._current()
        self._world.note(who.name, "gets", _span(ids))
        if ids[0] <= floor or any(a >= b for a, b in pairwise(ids)):
            self._world.fail(f"{who} got {_span(ids)}, although {floor} had been returned before")
        self._highest = max(self._highest, ids[-1])
        self._node.ids += len(ids)
        self._world.ledger.handed_out(self._counter, ids, Moment(who.name, self._world.time))
        # One that was stopped may have made it before; and so may one that waited for several.
        if self._parse is not None and len(ids) == 1 and not who.stopped_until:
            machine_id, _ = self._parse(ids[0])
            self._world.ledger.stamped(self._namespace, machine_id, who, now=self._world.time)

    async def _use(self, ids: Sequence[int]) -> None:
        """Use the ids, perhaps a good while after they were returned."""
        rng, faults, made = self._world.rng, self._node.faults, self._made(ids)
        if faults.hold and rng.random() < faults.hold:
            await asyncio.sleep(draw_between(rng, faults.held))
        self._used(made)

    def _made(self, ids: Sequence[int]) -> list[Made]:
        """Return the machine ids and times in ids, and how often each was granted until now."""
        if self._parse is None:
            return []
        parts, grants = map(self._parse, ids), self._world.ledger.grants
        return [(each, at_ms, grants(self._namespace, each)) for each, at_ms in parts]

    def _used(self, made: Sequence[Made]) -> None:
        if self._world.is_over or self.spoils is not None:
            return
        owner, ledger = self._node._current(), self._world.ledger
        for machine_id, at_ms, grants in made:
            ledger.emitted(self._namespace, machine_id, owner, at_ms, grants=grants)


def _span(ids: Sequence[int]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]}..{ids[-1]} ({len(ids)})"
