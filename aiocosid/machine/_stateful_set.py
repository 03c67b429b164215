"""The machine id of a Kubernetes StatefulSet's pod: its ordinal."""

from __future__ import annotations

import os
import re
from typing import Final

from ..abc import DEFAULT_NAMESPACE, InstanceId
from ..errors import InvalidArgumentError
from ._manual import DEFAULT_MARK_INTERVAL, ManualMachineIdDistributor

__all__ = ("StatefulSetMachineIdDistributor", "ordinal_of")

VARIABLE: Final = "POD_NAME"

POD: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?-(0|[1-9][0-9]{0,9})")
"""The name of a StatefulSet, which is a label of DNS, and an ordinal without leading zeros."""

TWO_NUMBERS: Final = re.compile(r".*-[0-9]+-[0-9]+")
"""An address, as ``ip-10-0-0-12``, or a pod of one of several numbered StatefulSets."""


class StatefulSetMachineIdDistributor(ManualMachineIdDistributor):
    """The number behind the last hyphen of the pod's name: ``web-3`` has machine id 3.

    The name comes from Kubernetes, by the downward API's ``metadata.name``, and never from the host
    name: on the host's network that is the node's name, and other machines have numbers in their
    names, too.  Kubernetes runs at most one pod of each name, unless a pod is deleted by force.
    All else is as in `ManualMachineIdDistributor`; put ``state_dir`` on the pod's own volume, so
    that the time mark outlives the container.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        pod_name: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        worker: int | None = None,
        worker_bits: int = 0,
        state_dir: str | os.PathLike[str] | None = None,
        interval: float = DEFAULT_MARK_INTERVAL,
    ) -> None:
        """Read the ordinal; nothing is locked yet.

        Args:
            pod_name: the pod's name; by default the environment's ``POD_NAME``, which the pod's
                template sets from ``metadata.name``.
            namespace: the namespace of the machine ids, at most 91 characters.
            worker: which of the pod's several workers this is, from 0.
            worker_bits: how many of the lowest bits hold the worker.
            state_dir: the directory of lock and mark; by default ``~/.cosid-machine-state``.
            interval: seconds between two writings of the mark.

        Raises:
            InvalidArgumentError: no name is given; it does not end in a hyphen and an ordinal; it
                ends in two numbers, as the host name ``ip-10-0-0-12`` does; or another argument is
                outside its range.
        """
        name = os.environ.get(VARIABLE, "") if pod_name is None else pod_name
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


def ordinal_of(pod_name: str) -> int:
    """Return the number behind the last hyphen of a pod's name.

    Raises:
        InvalidArgumentError: no pod of a StatefulSet has such a name, or other pods may have the
            same number.
    """
    found = POD.fullmatch(pod_name)
    if found is None:
        expected = (
            "the name of a StatefulSet's pod, such as web-3; if none is given, it is the "
            f"environment's {VARIABLE}, which the pod's template sets from metadata.name"
        )
        raise InvalidArgumentError("pod_name", pod_name, expected=expected)
    if TWO_NUMBERS.fullmatch(pod_name):
        expected = (
            "a name with one number at its end: a host's address ends in several, and so does a "
            "pod of one of several StatefulSets, which have the same ordinals; choose numbers "
            "with ManualMachineIdDistributor, or lease them from a store"
        )
        raise InvalidArgumentError("pod_name", pod_name, expected=expected)
    return int(found[1])
