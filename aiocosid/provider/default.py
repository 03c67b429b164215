"""The process's default provider, for code that is imported before any provider exists.

A column of a model or a route names its generator when a module is imported; the provider is
opened later, in the application's lifespan.  It is a plain global: a context variable that is set
in a lifespan is not seen by requests, which are tasks of their own.
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
    """Make a provider the process's default for the length of a ``with`` block.

    Blocks may nest and end in any order; the last one begun that has not ended counts.

    Args:
        provider: as `connect` or `configure` returns it.

    Raises:
        InvalidArgumentError: it is no provider, or one of `aiocosid.sync`, whose generators need
            none.
    """
    if not _is(provider, Provider):
        expected = (
            "a provider as connect() or configure() returns it; generators of aiocosid.sync are "
            "used directly"
        )
        raise InvalidArgumentError("provider", provider, expected=expected)
    _providers.append(provider)
    try:
        yield provider
    finally:
        # From the end, and by identity: the same provider may be in use twice.
        for at in reversed(range(len(_providers))):
            if _providers[at] is provider:
                del _providers[at]
                break


def default_provider() -> Provider:
    """Return the process's default provider.

    Raises:
        NotOpenError: there is none; the error says how to set one.
        WrongLoopError: an integration refuses the running loop, as `integrations.temporal` does.
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
        name: the generator's; ``__share__`` by default.
        provider: where to look; the default one if none is given.

    Raises:
        GeneratorMissingError: the provider has no generator of that name.
        NotOpenError: no provider was given, and there is no default one.
        WrongLoopError: no provider was given, and an integration refuses the running loop.
    """
    found = provider if provider is not None else default_provider()
    try:
        return found[name]
    except GeneratorMissingError:
        raise
    except KeyError:
        # Python would iterate over what has nothing but __getitem__, with numbers.
        known = found if _is(found, Iterable) else ()
        raise GeneratorMissingError(name, known=known) from None


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind)
