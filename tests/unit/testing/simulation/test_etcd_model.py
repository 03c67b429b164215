"""The simulated etcd answers as a real one does, and its leases end when they do there."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiocosid.stores.etcd._driver import close_channel, grpc, open_channel, rpc
from aiocosid.stores.etcd._server import put, same, same_value
from aiocosid.stores.etcd._url import Target
from aiocosid.testing.simulation._errors import RefusedError
from aiocosid.testing.simulation._etcd_state import EtcdState
from tests.servers import EtcdServer

CALLS = 600
KEYS = [b"/model/%d" % each for each in range(5)]
LEASES = [70_001, 70_002, 70_003]


def made() -> EtcdState:
    return EtcdState(lambda: 0.25)


class Asking:
    """Draws requests of which some mean nothing."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - it has to be repeatable

    def request(self, revision: int) -> tuple[str, Any]:
        rng = self._rng
        lease = rng.choice(LEASES)
        kind = rng.random()
        if kind < 0.7:
            compares = [self._compare(revision) for _ in range(rng.randrange(3))]
            return "Txn", rpc.TxnRequest(
                compare=compares, success=self._operations(), failure=self._operations()
            )
        if kind < 0.85:
            past = rng.choice((0, revision, revision - 1, revision + 5))
            return "Range", self._range(past)
        if kind < 0.9:
            return "LeaseGrant", rpc.LeaseGrantRequest(ID=lease, TTL=rng.choice((600, 7000)))
        if kind < 0.95:
            return "LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease)
        return "LeaseTimeToLive", rpc.LeaseTimeToLiveRequest(ID=lease)

    def _range(self, revision: int = 0) -> Any:
        rng = self._rng
        end = rng.choice((b"", KEYS[3], b"/model0"))
        return rpc.RangeRequest(
            key=rng.choice(KEYS), range_end=end, limit=rng.randrange(3), revision=revision
        )

    def _compare(self, revision: int) -> Any:
        rng, key = self._rng, self._rng.choice(KEYS)
        number = rng.choice((0, 1, 2, revision, revision - 1, *LEASES))
        compare = rng.choice((same(key, number), same_value(key, b"%d" % rng.randrange(3))))
        match rng.randrange(6):
            case 0:
                compare = rpc.Compare(key=key, target=rpc.Compare.VERSION, version=number)
            case 1:
                compare = rpc.Compare(key=key, target=rpc.Compare.CREATE, create_revision=number)
            case 2:
                compare = rpc.Compare(key=key, target=rpc.Compare.LEASE, lease=number)
            case _:
                pass
        compare.result = rng.randrange(4)
        return compare

    def _operations(self) -> list[Any]:
        return [self._operation() for _ in range(self._rng.randrange(4))]

    def _operation(self) -> Any:
        rng, key = self._rng, self._rng.choice(KEYS)
        match rng.randrange(4):
            case 0:
                return rpc.RequestOp(request_range=self._range())
            case 1:
                asked = rpc.DeleteRangeRequest(key=key, range_end=rng.choice((b"", KEYS[3])))
                return rpc.RequestOp(request_delete_range=asked)
            case _:
                lease = rng.choice((0, 0, 0, *LEASES))
                return put(key, b"%d" % rng.randrange(3), lease)


def told(reply: Any) -> str:
    """A reply, without what is never the same: who says so, and how long a lease still has."""
    for name in ("cluster_id", "member_id", "raft_term"):
        reply.header.ClearField(name)
    for each in getattr(reply, "responses", ()):
        getattr(each, each.WhichOneof("response")).ClearField("header")
    if getattr(reply, "grantedTTL", 0):
        reply.ClearField("TTL")
    return str(reply)


@pytest.mark.integration
@pytest.mark.asyncio
async def test_random_requests_are_answered_as_a_server_does(etcd: EtcdServer) -> None:
    channel = open_channel(Target.of(etcd.url), etcd.address)
    kv, lease = rpc.KVStub(channel), rpc.LeaseStub(channel)
    state, asking = made(), Asking(7)
    header = (await kv.Range(rpc.RangeRequest(key=KEYS[0]), timeout=5.0)).header
    state.revision = int(header.revision)
    state._past = {state.revision: {}}
    oldest = state.revision
    refused = 0
    try:
        for number in range(CALLS):
            call, request = asking.request(state.revision)
            if getattr(request, "revision", oldest) < oldest:
                continue  # of the time before
            stub = kv if call in {"Txn", "Range"} else lease
            try:
                expected = told(await getattr(stub, call)(request, timeout=5.0))
            except grpc.aio.AioRpcError as error:
                expected, refused = f"{error.code().name} {error.details()}", refused + 1
            try:
                found = told(state.answer(call, request, 0.0))
            except RefusedError as error:
                found = f"{error.code} {error}"
            assert found == expected, f"call {number}: {call} {request}"
    finally:
        await kv.DeleteRange(rpc.DeleteRangeRequest(key=b"/model/", range_end=b"/model0"))
        await close_channel(channel)
    assert CALLS / 20 < refused < CALLS / 2
    assert state.revision > oldest + 100


def test_a_lease_ends_by_the_leaders_clock() -> None:
    state = made()
    name = state.answer("LeaseGrant", rpc.LeaseGrantRequest(TTL=10), 0.0).ID
    state.answer("Txn", rpc.TxnRequest(success=[put(b"k", b"v", name)]), 0.0)
    about, renewal = rpc.LeaseTimeToLiveRequest(ID=name), rpc.LeaseKeepAliveRequest(ID=name)
    assert state.answer("LeaseTimeToLive", about, 0.5).TTL == 9
    assert state.answer("LeaseKeepAlive", renewal, 4.0).TTL == 10
    assert state.answer("LeaseTimeToLive", about, 13.5).TTL == 0
    state.lead(13.5, 1.0)  # all leases begin anew
    assert state.answer("LeaseTimeToLive", about, 13.5).TTL == 11
    assert state.answer("LeaseKeepAlive", renewal, 24.6).TTL == 0
    assert b"k" in state.keys  # until the leader gets round to it
    assert state.answer("LeaseTimeToLive", about, 25.0).TTL == -1
    assert not state.keys
    with pytest.raises(RefusedError, match="lease not found"):
        state.answer("Txn", rpc.TxnRequest(success=[put(b"k", b"v", name)]), 25.0)


def test_a_snapshot_is_another_cluster() -> None:
    state = made()
    state.answer("Txn", rpc.TxnRequest(success=[put(b"k", b"1")]), 0.0)
    before, saved = state.cluster, state.save()
    state.answer("Txn", rpc.TxnRequest(success=[put(b"k", b"2")]), 0.0)
    state.restore(saved)
    reply = state.answer("Range", rpc.RangeRequest(key=b"k"), 0.0)
    assert (reply.kvs[0].value, reply.header.revision) == (b"1", 2)
    assert reply.header.cluster_id != before
