"""Tests that are inherited by many classes, each with its own marks."""

from __future__ import annotations

from types import FunctionType
from typing import Final

__all__ = ("OwnTests",)

COPIED: Final = "_aiocosid_copied"


class OwnTests:
    """Gives each subclass its own copies of the tests that it inherits.

    Plugins mark functions: anyio's plugin marks those of a class with ``@pytest.mark.anyio``, and
    without copies they would also run on trio in a class with ``@pytest.mark.asyncio`` that is
    collected later.
    """

    def __init_subclass__(cls) -> None:
        """Copy the inherited tests."""
        super().__init_subclass__()
        for name in dir(cls):
            if name.startswith("test_") and name not in vars(cls):
                test = _inherited(cls, name)
                if isinstance(test, FunctionType):
                    setattr(cls, name, _copy(test))


def _inherited(cls: type, name: str) -> object:
    """Return what a class would inherit without the copies, so that a copy hides no override."""
    found = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
    return next((test for test in found if not hasattr(test, COPIED)), None)


def _copy(test: FunctionType) -> FunctionType:
    copy = FunctionType(
        test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__
    )
    copy.__kwdefaults__ = test.__kwdefaults__
    copy.__annotations__ = test.__annotations__
    copy.__doc__, copy.__module__ = test.__doc__, test.__module__
    copy.__qualname__ = test.__qualname__
    vars(copy).update(vars(test), **{COPIED: True})
    if "pytestmark" in vars(test):
        vars(copy)["pytestmark"] = [*vars(test)["pytestmark"]]
    return copy
