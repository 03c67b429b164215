"""Machine ids of an aiocosid server, which decides about them: each call is one operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InvalidArgumentError
from ...machine.distributor import CellMachineIdDistributor
from ...machine.operations import Renewed, Took
from ...machine.rules import MOST_AHEAD_MS

if TYPE_CHECKING:
    from ...machine.operations import ReleaseOperation, RenewOperation, TakeOperation
    from ._backend import RemoteBackend

__all__ = ("RemoteMachineIdDistributor",)


class RemoteMachineIdDistributor(CellMachineIdDistributor):
    """The machine ids of one namespace on a server's store, for one instance.

    Each call is one request, which may safely be sent twice, because the lease's token identifies
    the call.
    """

    __slots__ = ()

    is_remote = True

    _backend: RemoteBackend

    async def ask_take(self, asked: TakeOperation) -> Took:
        """Obtain a machine id.

        Raises:
            InvalidArgumentError: no server accepts a fence that is as far ahead as ``offline``
                needs.
            CosIdError: as for `distribute`.
        """
        if asked.offline_ms > MOST_AHEAD_MS:
            rule = f"must be at most {MOST_AHEAD_MS // 1000} seconds through an id service"
            raise InvalidArgumentError("offline", self.offline, rule)
        return await self._backend.operate("take_machine", self.namespace, asked, Took)

    async def ask_renew(self, asked: RenewOperation) -> Renewed:
        """Renew a machine id.

        Another process with the same instance id is detected only after the server has written the
        renewal.

        Raises:
            CosIdError: as for `renew`.
        """
        # The server may have written this even if the answer is lost.
        self._sent.append(asked.now_ms)
        done = await self._backend.operate("renew_machine", self.namespace, asked, Renewed)
        self._look_for_namesake(done)
        self._sent.append(done.stamp_ms)
        return done

    async def ask_release(self, asked: ReleaseOperation) -> None:
        """Release a machine id.

        Raises:
            CosIdError: as for `release`.
        """
        await self._backend.operate("release_machine", self.namespace, asked)
