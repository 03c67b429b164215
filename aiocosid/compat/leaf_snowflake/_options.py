"""The options of the registries in which an address keeps its worker id.  No I/O."""
# This module does without "from __future__ import annotations", because the bounds of options are
# needed at run time.

from typing import TYPE_CHECKING

from ...abc.leases import RestartOptions

if TYPE_CHECKING:
    import os

__all__ = ("LeafOptions", "LeafZkOptions")


class LeafOptions(RestartOptions):
    """The options of `LeafWorkerIdStore`.

    Attributes:
        state_dir: a directory on the machine's own disk.  With it, a process that starts on the
            same machine after a crash need not wait for the address's stored time.
        offline: seconds for which ids may be issued without the registry, also by a process that
            starts on the same machine; 0, or above 3.  It needs ``state_dir`` and `from_url`.  The
            stored time is ahead by as much, even after an orderly end.  During that time, a start
            of this address on another machine must wait, and a Leaf node refuses to start.
        ip: this process's address, at most 94 characters; it is never guessed.  Any text that no
            other process uses also works, for example a pod's stable name.
        port: this process's port, 1 to 65535; Leaf's ``leaf.snowflake.port``.
    """

    ip: str
    port: int | str


class LeafZkOptions(LeafOptions):
    """The options of `LeafZkNormalStore`.

    Attributes:
        name: Leaf's ``leaf.name``.
        leaf_dir: Java's ``java.io.tmpdir``.  Each renewal also writes the worker id and the time to
            the fork's ``workerID.properties`` in it, so that a Leaf node that takes the address
            back can start without ZooKeeper.  If the file cannot be written, the renewal fails.
            With ``offline`` the file is also read: if this address has no record in ``state_dir``,
            the first start without ZooKeeper takes the number from the file, and begins above its
            time, for ``offline`` seconds.  Nothing confirms that number, so use this only for an
            address that belongs to this host, and whose Leaf node has ended.  A file without a
            time, or with number 0, is not read.
    """

    name: str
    leaf_dir: "str | os.PathLike[str] | None" = None
