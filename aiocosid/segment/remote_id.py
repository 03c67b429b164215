"""Ids of a generator that a server has, taken as blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abc.options import takes
from .blocks import BlockDistributor
from .generator import SegmentGenerator
from .options import RemoteIdOptions

if TYPE_CHECKING:
    from .blocks import BlockSource

__all__ = ("RemoteId",)


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

    @takes(RemoteIdOptions)
    def __init__(self, source: BlockSource, options: RemoteIdOptions, /) -> None:
        """Describe a generator; nothing is fetched before it is opened.

        Args:
            source: the store of the server, as ``open_store("aiocosid+unix:///...")`` returns it.
            options: the keyword arguments: see `RemoteIdOptions`.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        distributor = BlockDistributor(
            source, namespace=options.namespace, name=options.name, step=options.block
        )
        super().__init__(distributor, options, options.pace())
