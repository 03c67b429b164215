"""The machine id of a Kubernetes StatefulSet's pod: its ordinal."""

from __future__ import annotations

import os
import re
from typing import Final

from ..abc import DEFAULT_NAMESPACE, InstanceId
from ..errors import InvalidArgumentError
from ._manual import DEFAULT_MARK_INTERVAL, ManualMachineIdDistributor

__all__ = ("StatefulSetMachineIdDistributor", "ordinal_of")

POD_NAME: Final = re.compile(r".+-([0-9]{1,10})", re.DOTALL)
"""At least one character before the last hyphen, as CosId requires."""


class StatefulSetMachineIdDistributor(ManualMachineIdDistributor):
    """The number behind the last hyphen of the pod's name: ``web-3`` has machine id 3.

    Kubernetes runs at most one pod of each name, unless a pod is deleted by force.  All else is as
    in `ManualMachineIdDistributor`; put ``state_dir`` on the pod's own volume, so that the time
    mark outlives the container.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        hostname: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        worker: int | None = None,
        worker_bits: int = 0,
        state_dir: str | os.PathLike[str] | None = None,
        interval: float = DEFAULT_MARK_INTERVAL,
    ) -> None:
        """Read the ordinal; nothing is locked yet.

        Args:
            hostname: the pod's name; by default the environment's ``HOSTNAME``.
            namespace: the namespace of the machine ids, at most 91 characters.
            worker: which of the pod's several workers this is, from 0.
            worker_bits: how many of the lowest bits hold the worker.
            state_dir: the directory of lock and mark; by default ``~/.cosid-machine-state``.
            interval: seconds between two writings of the mark.

        Raises:
            InvalidArgumentError: the name does not end in a hyphen and a number, or another
                argument is outside its range.
        """
        name = os.environ.get("HOSTNAME", "") if hostname is None else hostname
        # Workers of one pod must not share a state file.
        text = name if worker is None else f"{name}:{worker}"
        super().__init__(
            ordinal_of(name),
            namespace=namespace,
            instance_id=InstanceId(text, stable=True),
            worker=worker,
            worker_bits=worker_bits,
            state_dir=state_dir,
            interval=interval,
        )


def ordinal_of(hostname: str) -> int:
    """Return the number behind the last hyphen.

    Raises:
        InvalidArgumentError: there is none.
    """
    found = POD_NAME.fullmatch(hostname)
    if found is None:
        expected = "the name of a StatefulSet's pod, such as web-3 (HOSTNAME, if none is given)"
        raise InvalidArgumentError("hostname", hostname, expected=expected)
    return int(found[1])
