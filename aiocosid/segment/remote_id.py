"""Ids of a generator on a server, taken as blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._life import fork
from .._life.callers import in_stretches
from ..abc.checks import check_integer
from ..abc.options import takes
from ..abc.shards import refuse_shard
from ..errors import StoreError
from .blocks import BlockDistributor
from .generator import SegmentGenerator
from .options import RemoteIdOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .blocks import BlockSource, ShardBits

__all__ = ("RemoteId",)

STRETCH: Final = 10_000  # ids between two turns of the event loop, about a millisecond


class RemoteId(SegmentGenerator):
    """Ids of a generator on an aiocosid server, such as the broker of a host.

    It requests blocks of ids before they are needed, so most calls send nothing.  All processes
    together need one machine id, the server's.  Ids of one process rise; ids of several processes
    are nearly in order, because no id is handed out later than ``max_age`` after its block was
    requested.

    Open it with ``async with``, or with ``await task_group.start(remote.run)``; either returns once
    the first block is there.  It belongs to the event loop on which it was opened.
    """

    __slots__ = ()

    _distributor: BlockDistributor

    @takes(RemoteIdOptions)
    def __init__(self, source: BlockSource, options: RemoteIdOptions, /) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            source: the store of the server, for example
                ``store_from_url("aiocosid+unix:///...")``.
            options: the keyword arguments: see `RemoteIdOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        distributor = BlockDistributor(
            source, namespace=options.namespace, name=options.name, step=options.block
        )
        super().__init__(distributor, options, options.pace())

    # The hot path.

    async def next_id(self, sharding_id: int | None = None) -> int:
        """Return the next id; see `aiocosid.abc.IdGenerator.next_id`.

        Args:
            sharding_id: for a generator whose ids contain their shard: 0 to the highest of its
                layout; None for the generator's own.

        Raises:
            InvalidArgumentError: the ids contain no shard, or there is no such sharding id.
            StoreError: the server's layout has changed since the generator was opened; calls
                without a sharding id still work.
            CosIdError: as for every generator.
        """
        if sharding_id is not None:
            self._shards(sharding_id)
            new_id = await super().next_id()  # perhaps from a block that came after the check
            return self._shards(sharding_id).move(new_id, sharding_id)
        for new_id in self._hand.exposed:
            return new_id
        return await self._next_id_slow()

    def next_id_nowait(self, sharding_id: int | None = None) -> int:
        """Return the next buffered id; see `aiocosid.abc.IdGenerator.next_id_nowait`."""
        if sharding_id is None:
            return super().next_id_nowait()
        return self._shards(sharding_id).move(super().next_id_nowait(), sharding_id)

    async def next_ids(self, n: int, sharding_id: int | None = None) -> list[int]:
        """Return exactly ``n`` ids, 1 to 10 million; see `aiocosid.abc.IdGenerator.next_ids`.

        Args:
            n: the number of ids.
            sharding_id: as for `next_id`; the same for all of them.
        """
        if sharding_id is None:
            return await super().next_ids(n)
        process = fork.generation
        self._shards(sharding_id)
        taken = await super().next_ids(n)
        shards = self._shards(sharding_id)  # again, as in `next_id`

        def move(ids: Sequence[int]) -> list[int]:
            return [shards.move(each, sharding_id) for each in ids]

        ids = await in_stretches(taken, move, STRETCH)
        fork.ensure_own(process, self._home.label)
        return ids

    # The boundary.

    def _shards(self, sharding_id: int) -> ShardBits:
        self._check_usable()  # once it is open, a block has told what the ids contain
        found = self._distributor.shards
        if len(found) > 1:  # moved by the wrong bits, two ids may become one
            raise StoreError(
                self._distributor.store,
                "its layout has changed, and ids of both layouts may be buffered here",
                remedy="close the generator, and reopen it",
            )
        shards = next(iter(found), None)
        if shards is None:
            refuse_shard(sharding_id, "sharding_id")
        check_integer("sharding_id", sharding_id, at_least=0, at_most=shards.most)
        return shards

    # Opening.

    def _reset(self) -> None:
        self._distributor.shards = set()
        super()._reset()
