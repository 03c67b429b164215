"""Twitter's worker ids, as a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from .._url import split_options
from .._worker_store import WorkerIdStore
from ._worker_ids import PATH, PORT, TwitterMachineIdDistributor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("TwitterStore",)

SCHEME: Final = "twitter+"
OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "worker_id": int,
    "datacenter_id": int,
    "host": str,
    "port": int,
    "path": str,
}


class TwitterStore(WorkerIdStore):
    """The worker id of one of Twitter's servers, as a store of machine ids alone."""

    __slots__ = ()

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - the driver has no types
        *,
        worker_id: int | None = None,
        datacenter_id: int = 0,
        host: str | None = None,
        port: int = PORT,
        path: str = PATH,
    ) -> None:
        """Work on your own client, which stays yours to stop; nothing is sent yet.

        Args:
            client: as for `TwitterMachineIdDistributor`, and so are the others.
            worker_id: likewise.
            datacenter_id: likewise.
            host: likewise.
            port: likewise.
            path: likewise.

        Raises:
            InvalidArgumentError: an argument is outside its range.
        """
        machine = TwitterMachineIdDistributor(
            client,
            worker_id=worker_id,
            datacenter_id=datacenter_id,
            host=host,
            port=port,
            path=path,
        )
        super().__init__(machine)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Make one with a session of its own, begun when it is used; nothing is sent yet.

        Args:
            url: ZooKeeper's, and in its query what `TwitterMachineIdDistributor` is told:
                ``twitter+zookeeper://a,b,c?datacenter_id=3&host=10.0.0.9&port=7609``.

        Raises:
            InvalidArgumentError: the URL is malformed, or an argument outside its range.
        """
        server, told = split_options(url.removeprefix(SCHEME), OPTIONS)
        made = cls.__new__(cls)
        WorkerIdStore.__init__(made, TwitterMachineIdDistributor.from_url(server, **told))
        return made
