"""What an etcd cluster holds, and what it answers: one history of revisions, and leases."""

from __future__ import annotations

from operator import eq, gt, lt, ne
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...stores.etcd._driver import rpc
from ._errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ("EtcdState", "Keys", "Snapshot")

SHORTEST: Final = 2  # seconds; no lease is shorter

Keys = dict[bytes, Any]
"""What was written last under each key; never changed, only replaced."""

_FACTS: Final[tuple[str, ...]] = ("version", "create_revision", "mod_revision", "value", "lease")
_HOLDS: Final[tuple[Callable[[Any, Any], bool], ...]] = (eq, gt, lt, ne)
"""By the numbers of `Compare.CompareTarget` and `Compare.CompareResult`."""


class Lease(NamedTuple):
    """What keys hang on.

    Attributes:
        seconds: how long it is.
        ends: when it is over, by the leader's clock.
        swept: when the leader gets round to take its keys away.
    """

    seconds: int
    ends: float
    swept: float


class Snapshot(NamedTuple):
    """What a cluster can be restored from."""

    revision: int
    keys: Keys
    leases: dict[int, Lease]


class EtcdState:
    """What all members agree on.

    Attributes:
        cluster: its id.
        term: how many leaders there were, about.
        revision: of the last write; all keys of one transaction have the same.
        keys: what there is.
        leases: those that have not been taken away.
    """

    def __init__(self, lag: Callable[[], float]) -> None:
        """Begin empty.

        Args:
            lag: draws by how many seconds the leader is late to take a lease away.
        """
        self.cluster, self.term, self.revision = 0xCE11, 2, 1
        self.keys: Keys = {}
        self.leases: dict[int, Lease] = {}
        self._past: dict[int, Keys] = {1: {}}
        self._lag = lag
        self._granted = 0

    # As the leader.

    def answer(self, call: str, request: Any, now: float) -> Any:  # noqa: ANN401 - the driver's
        """Do what is asked for.

        Args:
            call: its name, as the stubs have it.
            request: its message.
            now: by the leader's clock.

        Raises:
            RefusedError: it is refused.
        """
        self.sweep(now)
        reply = _ANSWERS[call](self, request, now)
        reply.header.cluster_id, reply.header.raft_term = self.cluster, self.term
        reply.header.revision = self.revision
        return reply

    def sweep(self, now: float) -> None:
        """Take away what is over."""
        for name in [name for name, lease in self.leases.items() if lease.swept <= now]:
            self._take_away(name)

    def lead(self, now: float, extra: float) -> None:
        """Be a new leader, who knows of no lease how long it has run: all begin anew."""
        self.term += 1
        for name, lease in self.leases.items():
            self.leases[name] = self._begun(lease.seconds, now + extra)

    def save(self) -> Snapshot:
        """Take a snapshot."""
        return Snapshot(self.revision, self.keys, dict(self.leases))

    def restore(self, saved: Snapshot) -> None:
        """Be another cluster, with what is in a snapshot."""
        self.cluster, self.term = self.cluster + 1, 1
        self.revision, self.keys, self.leases = saved.revision, saved.keys, dict(saved.leases)
        self._past = {self.revision: self.keys}

    # Keys.

    def _range(self, request: Any, _: float) -> Any:  # noqa: ANN401 - the driver's
        if request.revision > self.revision:
            raise RefusedError(
                "OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision"
            )
        return self._found(request, self._past[request.revision or self.revision])

    def _found(self, request: Any, keys: Keys) -> Any:  # noqa: ANN401 - the driver's
        names = _named(keys, request.key, request.range_end)
        shown = names[: request.limit or None]
        found = [keys[name] for name in shown]
        return rpc.RangeResponse(kvs=found, more=len(shown) < len(names), count=len(names))

    def _txn(self, request: Any, _: float) -> Any:  # noqa: ANN401 - the driver's
        for either in (request.success, request.failure):
            _check_puts(either)
        succeeded = all(map(self._holds, request.compare))
        operations = request.success if succeeded else request.failure
        for each in operations:
            lease = each.request_put.lease
            if lease and lease not in self.leases:
                raise RefusedError("NOT_FOUND", "etcdserver: requested lease not found")
        written = dict(self.keys)
        replies = [self._apply(each, written) for each in operations]
        if any(map(_wrote, replies)):
            self._commit(written)
        return rpc.TxnResponse(succeeded=succeeded, responses=replies)

    def _holds(self, compare: Any) -> bool:  # noqa: ANN401 - the driver's
        fact = _FACTS[int(compare.target)]
        if compare.key not in self.keys and fact == "value":
            return False
        found = getattr(self.keys.get(compare.key, _NOTHING), fact)
        return bool(_HOLDS[int(compare.result)](found, getattr(compare, fact)))

    def _apply(self, operation: Any, written: Keys) -> Any:  # noqa: ANN401 - the driver's
        if operation.HasField("request_range"):
            return rpc.ResponseOp(response_range=self._found(operation.request_range, written))
        if operation.HasField("request_put"):
            self._put(operation.request_put, written)
            return rpc.ResponseOp(response_put=rpc.PutResponse())
        asked = operation.request_delete_range
        gone = [written.pop(name) for name in _named(written, asked.key, asked.range_end)]
        return rpc.ResponseOp(response_delete_range=rpc.DeleteRangeResponse(deleted=len(gone)))

    def _put(self, request: Any, written: Keys) -> None:  # noqa: ANN401 - the driver's
        before, revision = written.get(request.key, _NOTHING), self.revision + 1
        written[request.key] = rpc.KeyValue(
            key=request.key,
            value=request.value,
            lease=request.lease,
            version=before.version + 1,
            create_revision=before.create_revision or revision,
            mod_revision=revision,
        )

    def _commit(self, written: Keys) -> None:
        self.revision += 1
        self._past[self.revision] = self.keys = written

    # Leases.

    def _grant(self, request: Any, now: float) -> Any:  # noqa: ANN401 - the driver's
        self._granted += 1
        name = request.ID or self._granted
        if name in self.leases:
            raise RefusedError("FAILED_PRECONDITION", "etcdserver: lease already exists")
        lease = self.leases[name] = self._begun(max(request.TTL, SHORTEST), now)
        return rpc.LeaseGrantResponse(ID=name, TTL=lease.seconds)

    def _keep_alive(self, request: Any, now: float) -> Any:  # noqa: ANN401 - the driver's
        lease = self.leases.get(request.ID)
        if lease is None or lease.ends <= now:
            return rpc.LeaseKeepAliveResponse(ID=request.ID)
        self.leases[request.ID] = self._begun(lease.seconds, now)
        return rpc.LeaseKeepAliveResponse(ID=request.ID, TTL=lease.seconds)

    def _remaining(self, request: Any, now: float) -> Any:  # noqa: ANN401 - the driver's
        lease = self.leases.get(request.ID)
        if lease is None or lease.ends <= now:
            return rpc.LeaseTimeToLiveResponse(ID=request.ID, TTL=-1)
        left = int(lease.ends - now)
        return rpc.LeaseTimeToLiveResponse(ID=request.ID, TTL=left, grantedTTL=lease.seconds)

    def _revoke(self, request: Any, _: float) -> Any:  # noqa: ANN401 - the driver's
        if request.ID not in self.leases:
            raise RefusedError("NOT_FOUND", "etcdserver: requested lease not found")
        self._take_away(request.ID)
        return rpc.LeaseRevokeResponse()

    def _begun(self, seconds: int, now: float) -> Lease:
        return Lease(seconds, now + seconds, now + seconds + self._lag())

    def _take_away(self, name: int) -> None:
        del self.leases[name]
        left = {key: each for key, each in self.keys.items() if each.lease != name}
        if len(left) < len(self.keys):
            self._commit(left)


def _named(keys: Iterable[bytes], start: bytes, end: bytes) -> list[bytes]:
    """Return one key, or those from a start to before an end."""
    return sorted(key for key in keys if (start <= key < end if end else key == start))


def _check_puts(operations: Sequence[Any]) -> None:
    """No key may be written twice, nor be written and removed."""
    puts = [each.request_put.key for each in operations if each.HasField("request_put")]
    spans = [each.request_delete_range for each in operations]
    if len({*puts}) < len(puts) or any(_named(puts, span.key, span.range_end) for span in spans):
        raise RefusedError("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request")


def _wrote(reply: Any) -> bool:  # noqa: ANN401 - the driver's
    return bool(reply.HasField("response_put") or reply.response_delete_range.deleted)


_NOTHING: Final = rpc.KeyValue()
_ANSWERS: Final[dict[str, Callable[[EtcdState, Any, float], Any]]] = {
    "Range": EtcdState._range,
    "Txn": EtcdState._txn,
    "LeaseGrant": EtcdState._grant,
    "LeaseKeepAlive": EtcdState._keep_alive,
    "LeaseTimeToLive": EtcdState._remaining,
    "LeaseRevoke": EtcdState._revoke,
}
