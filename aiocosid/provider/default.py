"""The process's default provider, for code that is imported before any provider exists.

A model's column or a route names its generator when a module is imported; the provider is opened
later, in the application's lifespan.  The default is a plain global variable, because a context
variable that is set in a lifespan is not visible to requests, which run in their own tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..abc import SHARE, Provider
from ..abc.checks import check_loop
from ..errors import GeneratorMissingError, InvalidArgumentError, NotOpenError

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..abc import AnyGenerator

__all__ = ("default_provider", "generator_named", "use_provider")

_providers: list[Provider] = []


@contextmanager
def use_provider(provider: Provider) -> Generator[Provider]:
    """Make a provider the process's default for the duration of a ``with`` block.

    Blocks may be nested and end in any order; the latest block that has not ended counts.

    Args:
        provider: a provider from `connect` or `configure`.

    Raises:
        InvalidArgumentError: ``provider`` is not a provider, or is one from `aiocosid.sync`, whose
            generators need no default.
    """
    if not _is(provider, Provider):
        rule = (
            "must be a provider from connect() or configure(); use those of aiocosid.sync directly"
        )
        raise InvalidArgumentError("provider", provider, rule)
    _providers.append(provider)
    try:
        yield provider
    finally:
        # The search starts at the end and compares identities, because the same provider may be in
        # use twice.
        for at in reversed(range(len(_providers))):
            if _providers[at] is provider:
                del _providers[at]
                break


def default_provider() -> Provider:
    """Return the process's default provider.

    Raises:
        NotOpenError: there is no default provider; the error says how to set one.
        WrongLoopError: an integration, for example `integrations.temporal`, refuses the running
            loop.
    """
    check_loop("the default provider")
    if not _providers:
        reason = "is not set, even where a provider is open"
        remedy = "run this within 'with aiocosid.use_provider(ids):'"
        raise NotOpenError("the default provider", reason=reason, remedy=remedy)
    return _providers[-1]


def generator_named(name: str = SHARE, provider: Provider | None = None) -> AnyGenerator:
    """Return a generator by its name.

    Args:
        name: the generator's name; ``__share__`` by default.
        provider: the provider to search; the default provider if None.

    Raises:
        GeneratorMissingError: the provider has no generator with that name.
        NotOpenError: no provider was given, and there is no default provider.
        WrongLoopError: no provider was given, and an integration refuses the running loop.
    """
    found = provider if provider is not None else default_provider()
    try:
        return found[name]
    except GeneratorMissingError:
        raise
    except KeyError:
        # Python would iterate over an object that has only __getitem__, using numbers.
        known = found if _is(found, Iterable) else ()
        raise GeneratorMissingError(name, known=known) from None


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind)
