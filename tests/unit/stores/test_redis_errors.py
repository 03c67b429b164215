"""What becomes of the driver's errors, those included that no server can be made to send."""

from __future__ import annotations

from typing import Any

import pytest
from redis import exceptions as driver
from redis.asyncio.sentinel import MasterNotFoundError

from aiocosid.errors import (
    CorruptCounterError,
    CosIdError,
    IdOverflowError,
    InvalidArgumentError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.stores.redis import RedisStore
from aiocosid.stores.redis._link import _Sentinels, as_store_error


def meaning(error: Exception) -> CosIdError:
    with pytest.raises(CosIdError) as caught, as_store_error("ns.n", "key"):
        raise error
    assert caught.value is error or caught.value.__cause__ is error
    return caught.value


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (driver.AuthenticationError("invalid username-password pair"), StoreAuthenticationError),
        (driver.NoPermissionError("User x has no permissions"), StoreAuthenticationError),
        (driver.ResponseError("NOAUTH Authentication required."), StoreAuthenticationError),
        (driver.ResponseError("WRONGPASS invalid"), StoreAuthenticationError),
        (driver.ResponseError("ACL failure in script: User x has no"), StoreAuthenticationError),
        (driver.ResponseError("The user executing the script can't"), StoreAuthenticationError),
        (driver.ConnectionError("Connection refused"), StoreUnavailableError),
        (driver.TimeoutError("Timeout reading from h:1"), StoreUnavailableError),
        (driver.MaxConnectionsError("Too many connections"), StoreUnavailableError),
        (driver.BusyLoadingError("Redis is loading the dataset"), StoreUnavailableError),
        (driver.ReadOnlyError("You can't write against a replica"), StoreUnavailableError),
        (driver.ClusterDownError("The cluster is down"), StoreUnavailableError),
        (
            driver.ResponseError("Script attempted to execute a command while the cluster is down"),
            StoreUnavailableError,
        ),
        (driver.SlotNotCoveredError("Slot 1 not covered"), StoreUnavailableError),
        (driver.OutOfMemoryError("command not allowed"), StoreUnavailableError),
        (driver.ResponseError("MISCONF Redis is configured to save"), StoreUnavailableError),
        (driver.ResponseError("NOREPLICAS Not enough good replicas"), StoreUnavailableError),
        (driver.ResponseError("Error running script: -LOADING Redis"), StoreUnavailableError),
        (MasterNotFoundError("No master found for 'ids'"), StoreUnavailableError),
        (ConnectionResetError(104, "reset"), StoreUnavailableError),
        (TimeoutError(), StoreUnavailableError),
        (RuntimeError("Event loop is closed"), StoreUnavailableError),
        (driver.ResponseError("increment or decrement would overflow"), IdOverflowError),
        (driver.ResponseError("value is not an integer or out of range"), CorruptCounterError),
        (driver.ResponseError("WRONGTYPE Operation against a key"), CorruptCounterError),
        (driver.MovedError("1 127.0.0.1:2"), StoreError),
        (driver.AskError("1 127.0.0.1:2"), StoreError),
        (driver.ResponseError("unknown command 'INCRBY'"), StoreError),
        (driver.RedisClusterException("Cluster mode is not enabled on this node"), StoreError),
        (PermissionError(13, "denied"), StoreError),
        (StoreError("redis", "ours already"), StoreError),
    ],
)
def test_driver_error_becomes_ours(error: Exception, expected: type[CosIdError]) -> None:
    """One meaning each; only an outage is worth a second attempt."""
    found = meaning(error)
    assert type(found) is expected
    assert found.retryable is (expected is StoreUnavailableError)


@pytest.mark.parametrize(
    "error",
    [
        driver.TryAgainError("Multiple keys request during rehashing of slot"),
        driver.ResponseError("TRYAGAIN Multiple keys request during rehashing of slot"),
        driver.ClusterError("TTL exhausted."),
        # Redis, and Valkey.
        driver.ResponseError("ERR Script attempted to access a non local key in a cluster node"),
        driver.ResponseError("Attempted to access a non local key in a cluster node script"),
    ],
)
def test_a_slot_that_moves(error: Exception) -> None:
    """It is told, and worth a second attempt."""
    found = meaning(error)
    assert type(found) is StoreUnavailableError
    assert "is moving to another node" in str(found)


def test_refusal_is_found_behind_what_the_cluster_client_made_of_it() -> None:
    """It wraps whatever its first connection met."""
    error = driver.RedisClusterException("Redis Cluster cannot be connected: ...")
    error.__cause__ = driver.AuthenticationError("invalid username-password pair")
    assert type(meaning(error)) is StoreAuthenticationError
    error.__cause__ = driver.ConnectionError("refused")
    assert type(meaning(error)) is StoreUnavailableError


def test_error_of_a_driver_with_a_tree_of_its_own() -> None:
    """valkey-py's classes have the same names and no common root with redis-py's."""
    root = type("ValkeyError", (Exception,), {})
    assert type(meaning(type("TimeoutError", (root,), {})())) is StoreUnavailableError
    assert type(meaning(type("ResponseError", (root,), {})("odd"))) is StoreError


def test_sentinel_password_in_an_old_drivers_error_goes() -> None:
    """Drivers before 8 list the sentinels asked, passwords included."""
    error = MasterNotFoundError("No master found for 'ids' : Redis<password=s3cr3t> - refused")
    found = meaning(error)
    assert "s3cr3t" not in f"{found} {found!r} {error} {error!r}"
    assert "'ids'" in str(found)


@pytest.mark.parametrize("error", [ValueError("a mistake of ours"), RuntimeError("as well")])
def test_what_is_not_the_drivers_goes_through(error: Exception) -> None:
    """A bug stays a bug."""
    with pytest.raises(type(error)) as caught, as_store_error():
        raise error
    assert caught.value is error
    assert not isinstance(error, InvalidArgumentError)


@pytest.mark.parametrize(
    ("error", "leaves"),
    [
        (driver.ReadOnlyError("You can't write against a read only replica."), True),
        (driver.ResponseError("Error running script: -READONLY You can't write"), True),
        (driver.ResponseError("ERR something else"), False),
        (driver.ConnectionError("reset"), False),
    ],
)
async def test_a_server_that_became_a_replica_is_left(error: Exception, leaves: bool) -> None:
    """Its connections are closed, whichever way it says so; others are kept."""
    link = RedisStore.from_url("redis://")._backend.link

    async def command(_: Any) -> None:
        raise error

    before = await link._connection.ready()
    with pytest.raises(StoreError) as caught:
        await link.call(command)
    assert caught.value.__cause__ is error
    assert (await link._connection.ready() is not before) is leaves
    await link.aclose()


class SomeSentinel:
    """A sentinel that answers with the masters it knows, or refuses."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer

    async def sentinel_masters(self) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_a_failover_beside_a_sentinel_that_refuses() -> None:
    """It ends by itself, as the sentinel that answers knows; the refusal alone does not."""
    refusing = SomeSentinel(driver.AuthenticationError("WRONGPASS invalid"))
    down = {"is_master": True, "is_sdown": True, "is_odown": False, "num-other-sentinels": 2}
    sentinels: Any = _Sentinels([])  # type: ignore[no-untyped-call]
    for second, kind in (
        (SomeSentinel({"shop": down}), StoreUnavailableError),
        (SomeSentinel({"another": down}), StoreAuthenticationError),
        (refusing, StoreAuthenticationError),
    ):
        sentinels.sentinels = [refusing, second]
        with pytest.raises(StoreError) as caught, as_store_error():
            await sentinels.discover_master("shop")
        assert type(caught.value) is kind
        assert "WRONGPASS" not in str(caught.value)
