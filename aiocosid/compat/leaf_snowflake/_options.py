"""The options of the registries in which an address keeps its worker id.  Pure."""
# Without "from __future__ import annotations": the bounds of options are there at run time.

from typing import TYPE_CHECKING

from ...abc.leases import RestartOptions

if TYPE_CHECKING:
    import os

__all__ = ("LeafOptions", "LeafZkOptions")


class LeafOptions(RestartOptions):
    """The options of `LeafWorkerIdStore`.

    Attributes:
        state_dir: a directory on the machine's own disk: after a crash and a start on the same
            machine the address does not wait for its time.
        offline: seconds without the registry for which ids may be issued, also by a process that
            starts on the same machine; 0, or above 3.  It needs ``state_dir``, and `from_url`.
            The stored time is as far ahead, also after an orderly end: for so long a start of this
            address elsewhere has to wait, and a Leaf node refuses to start.
        ip: this process's address, at most 94 characters; none is guessed.  Any text that no other
            process uses, such as a pod's stable name, works as well.
        port: this process's, 1 to 65535; Leaf's ``leaf.snowflake.port``.
    """

    ip: str
    port: int | str


class LeafZkOptions(LeafOptions):
    """The options of `LeafZkNormalStore`.

    Attributes:
        name: Leaf's ``leaf.name``.
        leaf_dir: Java's ``java.io.tmpdir``: each renewal also writes the worker id and the time to
            the fork's ``workerID.properties`` there, by which a Leaf node that takes the address
            back starts without ZooKeeper.  If it cannot be written, the renewal fails.  With
            ``offline`` it is read, too: where this address has no record in ``state_dir``, the
            first start without ZooKeeper takes the number from it, and begins above its time, for
            ``offline`` seconds.  Nobody confirms that: use it only for an address that is this
            host's own, and whose Leaf node has ended.  A file without a time is not read, nor one
            with number 0.
    """

    name: str
    leaf_dir: "str | os.PathLike[str] | None" = None
