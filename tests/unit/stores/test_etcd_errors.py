"""What the driver of etcd raises, and what becomes of it."""

from __future__ import annotations

from typing import Any

from aiocosid.errors import (
    CosIdError,
    IdOverflowError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
)
from aiocosid.stores.etcd._link import as_store_error, exceptions, grpc

StatusCode = grpc.StatusCode


def error_of(exc: BaseException) -> BaseException:
    try:
        with as_store_error():
            raise exc  # noqa: TRY301 - as a call inside would
    except BaseException as error:  # noqa: BLE001 - to be looked at
        return error


def refusal(code: Any, text: str) -> Any:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details=text)


def test_by_code_and_sentence() -> None:
    """An outage may be tried again, a refusal not."""
    due: dict[tuple[Any, str], type[CosIdError]] = {
        (StatusCode.UNAVAILABLE, "etcdserver: no leader"): StoreUnavailableError,
        (StatusCode.UNAVAILABLE, "no authentication.example"): StoreUnavailableError,
        (StatusCode.DEADLINE_EXCEEDED, ""): StoreUnavailableError,
        (StatusCode.RESOURCE_EXHAUSTED, "mvcc: database space exceeded"): StoreUnavailableError,
        (StatusCode.OUT_OF_RANGE, "revision has been compacted"): StoreUnavailableError,
        (StatusCode.UNKNOWN, "context deadline exceeded"): StoreUnavailableError,
        (StatusCode.INTERNAL, "stream was reset"): StoreUnavailableError,
        (StatusCode.UNAUTHENTICATED, "invalid auth token"): StoreAuthenticationError,
        (StatusCode.PERMISSION_DENIED, "permission denied"): StoreAuthenticationError,
        (StatusCode.INVALID_ARGUMENT, "user name is empty"): StoreAuthenticationError,
        (StatusCode.FAILED_PRECONDITION, "authentication is off"): StoreAuthenticationError,
        (StatusCode.UNAVAILABLE, "X: CERTIFICATE_VERIFY_FAILED"): StoreError,
        (StatusCode.UNIMPLEMENTED, "unknown service"): StoreError,
    }
    for (code, text), kind in due.items():
        exc = refusal(code, text)
        error = error_of(exc)
        assert type(error) is kind, text
        assert error.__cause__ is exc
        assert text in str(error)


def test_what_a_client_makes_of_it() -> None:
    """A user's own raises the driver's errors when it connects."""

    def of(made: Exception, cause: Exception | None) -> Any:
        made.__cause__ = cause
        return error_of(made)

    cause = refusal(StatusCode.UNAUTHENTICATED, "invalid")
    assert type(of(exceptions.UnauthenticatedError("x"), cause)) is StoreAuthenticationError
    assert type(of(exceptions.ConnectionFailedError("x"), None)) is StoreUnavailableError
    assert type(error_of(TimeoutError())) is StoreUnavailableError
    assert type(error_of(grpc.aio.UsageError("Channel is closed."))) is StoreUnavailableError


def test_what_is_nobodys_goes_through() -> None:
    """Ours, and what is no error of a store at all."""
    for exc in (IdOverflowError("a.b", limit=1), ValueError("x"), KeyboardInterrupt()):
        assert error_of(exc) is exc
