"""Finds the generator of a field in ``settings.AIOCOSID``."""

# pyright: basic
# In strict mode each name of the framework would be an error, because it has no annotations.

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

from django.conf import settings

from ...abc import IdGenerator, TextIdGenerator
from ...errors import InvalidArgumentError, WouldBlock
from ...sync import SyncIdProvider, SyncShardedId

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

__all__ = ("BlockingIds", "explaining_waits", "find_generator")

RULE = "must be a SyncIdGenerator such as aiocosid.sync.connect(url).segment_chain(name)"


class BlockingIds(Protocol):
    """The methods of a generator that a field needs; tests may use their own class."""

    def next_id(self) -> int | str:
        """Return the next id."""
        raise NotImplementedError

    def next_ids(self, n: int, /) -> Sequence[int | str]:
        """Return exactly ``n`` ids."""
        raise NotImplementedError


def find_generator(
    names: Sequence[str],
    create: Callable[[SyncIdProvider, str], BlockingIds] | None = None,
    kind: type[SyncShardedId] | None = None,
) -> BlockingIds:
    """Return the generator of the first of these names that the settings have.

    A provider has a generator for any name, and is asked for the last one.

    Args:
        names: the names, at least one.
        create: creates the generator in a provider from `aiocosid.sync.connect` that has none with
            that name yet.
        kind: the class of handle that a provider must return; None for any.

    Raises:
        InvalidArgumentError: there is no such generator, or its ids must be awaited; the error
            shows similar names.
    """
    ids: Any = getattr(settings, "AIOCOSID", None)
    is_mapping = isinstance(ids, Mapping)
    name = next((each for each in names if each in ids), names[-1]) if is_mapping else names[-1]
    if create and isinstance(ids, SyncIdProvider) and name not in ids.described():
        return create(ids, name)
    try:
        found: Any = ids[name] if is_mapping or kind is None else ids[name, kind]
    except (KeyError, TypeError):
        found = None
    if found is None or isinstance(found, IdGenerator | TextIdGenerator):
        similar = get_close_matches(name, list(ids)) if is_mapping else ()
        near = f"; use a similar name: {', '.join(map(repr, similar))}" if similar else ""
        argument = f"settings.AIOCOSID[{name!r}]"
        raise InvalidArgumentError(argument, found, f"{RULE}{near}")
    return found  # type: ignore[no-any-return]


@contextmanager
def explaining_waits(name: str, instead: str) -> Generator[None]:
    """Add to a `WouldBlock` what to write instead of the call that would have to wait."""
    try:
        yield
    except WouldBlock as error:
        # A provider for threads returns a handle for any name, and knows only when open whether it
        # exists.
        is_sure = isinstance(settings.AIOCOSID, Mapping)
        unsure = "" if is_sure else " (or settings.AIOCOSID has no such generator)"
        where = f"is buffered, and an event loop runs in this thread{unsure}"
        error.args = (f"no id of {name!r} {where}; {instead}",)
        raise
