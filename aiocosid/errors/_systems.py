"""What only tables of other systems have to say."""

from __future__ import annotations

from ._general import CosIdError, MachineIdOverflowError, StoreError

__all__ = ("CounterMissingError", "LeafWorkerIdsUsedUpError", "WorkerIdsUsedUpError")


class CounterMissingError(StoreError):
    """There is no such counter, and none was created; nothing was written.

    The other systems never make one by the way, and their nodes would take it up: so a name that is
    misspelt is an error there.  Commands that change what exists create nothing either, and an open
    generator's counter is not created again when it is gone.

    Attributes:
        table: the other system's table; empty for a counter of CosId's.
        counter: the name that was looked for.
        similar: counters of the store whose names are alike.
    """

    def __init__(
        self,
        store: str,
        *,
        counter: str,
        table: str = "",
        key: str = "",
        remedy: str = "",
        similar: tuple[str, ...] = (),
    ) -> None:
        what = f"there is no counter {counter!r}"
        if table:
            what = f"table {table!r} has no row whose {key} is {counter!r}"
        if similar:
            what += f"; similar are {', '.join(map(repr, similar))}"
        super().__init__(store, f"{what}; {remedy}" if remedy else what)
        self.table = table
        self.counter = counter
        self.similar = similar


class WorkerIdsUsedUpError(MachineIdOverflowError):
    """A start was given a number that does not fit the layout's machine bits.

    uid-generator counts starts and uses no number twice.  Forks that take it modulo something hand
    out live worker ids.
    """

    retryable = False

    def __init__(self, namespace: str, *, worker_id: int, bits: int) -> None:
        CosIdError.__init__(
            self,
            f"WORKER_NODE gave worker id {worker_id}, which {bits} machine bits do not hold; no id "
            "is taken twice, so take a layout with more machine bits whose ids cannot equal the "
            "old ones (aiocosid.snowflake.clearance() tells), or lease machine ids from a store, "
            "which uses them again in safety",
        )
        self.namespace = namespace
        self.size: int = 1 << bits
        self.holders: tuple[()] = ()
        self.worker_id = worker_id


class LeafWorkerIdsUsedUpError(MachineIdOverflowError):
    """The registry's next number does not fit the layout's machine bits.

    Leaf counts addresses and uses no number twice: each new address of a container takes one.

    Attributes:
        worker_id: the number; -1 if none was made.
    """

    retryable = False

    def __init__(
        self, namespace: str, *, worker_id: int, bits: int, holders: tuple[str, ...] = ()
    ) -> None:
        silent = f", as {', '.join(holders)}, silent for longest" if holders else ""
        number = f"worker id {worker_id}" if worker_id >= 0 else "the next worker id"
        CosIdError.__init__(
            self,
            f"{number} of {namespace} does not fit {bits} machine bits, which hold {1 << bits}; "
            f"give ip and port of a host that is gone for good{silent}, which takes over its "
            "number, or name hosts so that they come back under one name, or move to a registry "
            "that uses numbers again (zk_recycle, or a lease from any store of aiocosid)",
        )
        self.namespace = namespace
        self.size: int = 1 << bits
        self.holders = holders
        self.worker_id = worker_id
