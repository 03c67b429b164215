"""Finds the generator of a field in ``settings.AIOCOSID``."""

# pyright: basic
# Strictly, each name of the framework would be an error: it has no annotations.

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

EXPECTED = "a SyncIdGenerator, as aiocosid.sync.connect(url).segment_chain(name)"


class BlockingIds(Protocol):
    """What a field needs of a generator; in tests a class of your own may be one."""

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
    """Return the generator of the first of the names that the settings have.

    A provider, which has a generator for any name, is asked for the last one.

    Args:
        names: at least one.
        create: makes the generator in a provider of `aiocosid.sync.connect` that has none of that
            name yet.
        kind: of the handle that a provider has to return; None for any.

    Raises:
        InvalidArgumentError: there is none, or its ids have to be awaited; the error has similar
            names.
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
        near = f"; similar names: {', '.join(map(repr, similar))}" if similar else ""
        argument = f"settings.AIOCOSID[{name!r}]"
        raise InvalidArgumentError(argument, found, expected=f"{EXPECTED}{near}")
    return found  # type: ignore[no-any-return]


@contextmanager
def explaining_waits(name: str, instead: str) -> Generator[None]:
    """Say in a `WouldBlock` what to write instead of the call that would have to wait."""
    try:
        yield
    except WouldBlock as error:
        # A provider for threads gives a handle for any name, and knows it when it is open.
        is_sure = isinstance(settings.AIOCOSID, Mapping)
        unsure = "" if is_sure else " (unless settings.AIOCOSID has no such generator)"
        where = f"is in hand{unsure}, and an event loop runs in this thread"
        error.args = (f"no id of {name!r} {where}; {instead}",)
        raise
