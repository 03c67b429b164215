"""What a distributor of somebody else's raises, as an error of ours."""

from __future__ import annotations

from ._loop import is_stray_cancellation
from .errors import CosIdError, StoreError, StoreUnavailableError

__all__ = ("translated",)


def translated(store: str, error: BaseException) -> CosIdError:
    """Return an error of ours, with what was raised as its cause; raise a cancellation on.

    A CancelledError although nobody has cancelled the task is a driver's, whose own task ended.
    """
    if isinstance(error, CosIdError):
        return error
    ours: CosIdError
    if is_stray_cancellation(error):
        ours = StoreUnavailableError(store, "its call was cancelled")
    elif isinstance(error, Exception):
        ours = StoreError(store, f"{type(error).__name__}: {error}")
    else:
        raise error
    ours.__cause__ = error
    return ours
