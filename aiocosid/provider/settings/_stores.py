"""The stores in the settings, each created once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from ...abc import Store
from ...errors import InvalidArgumentError, MissingExtraError
from ..store_urls import open_tiered, store_from_url
from ._models import OwnStoreSettings, TieredSettings
from ._own import make_own
from ._places import placed
from ._values import shown_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._models import Settings
    from ._values import StoreValue

__all__ = ("Stores", "single_store", "store_factories")

PARTS: Final = ("root", "cache")


class Stores:
    """Creates the stores, and sends nothing.

    Attributes:
        opened: the stores that it has created, which the provider must close.
        borrowed: the stores that were passed as objects, which stay open.
    """

    def __init__(
        self,
        settings: Settings,
        note: Callable[[tuple[str, ...], str], None],
        **options: Any,  # noqa: ANN401 - options of a tiered store
    ) -> None:
        self.opened: list[Store] = []
        self.borrowed: list[Store] = []
        self._options = options
        self._settings = settings
        self._note = note
        self._made: dict[str, Store | None] = {}  # by URL, or by name

    @property
    def whole(self) -> list[Store]:
        """All stores, without those that are part of another one."""
        found = [*filter(None, self._made.values()), *self.borrowed]
        parts = [part for each in found for part in each.parts]
        return [each for each in found if not any(each is part for part in parts)]

    def of(
        self, path: tuple[str, ...], given: StoreValue | None, key: str = "store"
    ) -> tuple[Store | None, str]:
        """Return a generator's store, and its URL without secrets; record any problem.

        Args:
            path: the generator's table.
            given: the generator's own setting.
            key: the key of that setting.
        """
        if given is not None:
            return self._named((*path, key), _plain(given))
        if self._settings.store is not None:
            return self._named(("store",), _plain(self._settings.store))
        example = 'store = "redis://localhost/0"'
        self._note(path, f"needs a store: write {example} at the top of the file, or here")
        return None, ""

    def place(self, given: StoreValue | None) -> str:
        """Return the URL of a generator's store, including secrets, to tell stores apart.

        For a tiered store it is the root's URL, because machine ids are there.
        """
        found = self._settings.store if given is None else given
        if found is None:
            return ""
        root = _root(self._settings, _plain(found))
        return root if isinstance(root, str) else f"object {id(root)}"

    def check_unused(self) -> None:
        """Check the stores that no generator uses."""
        for name in self._settings.stores:
            self._named(("stores", name), name)

    def _named(self, path: tuple[str, ...], found: str | Store) -> tuple[Store | None, str]:
        named = self._settings.stores.get(found) if isinstance(found, str) else None
        if named is None:
            return self._open(path, found)
        path = ("stores", str(found))
        if isinstance(named, TieredSettings):
            return self._tiered(path, named)
        if isinstance(named, OwnStoreSettings):
            return self._own(path, named)
        return self._open(path, _plain(named))

    def _own(self, path: tuple[str, ...], section: OwnStoreSettings) -> tuple[Store | None, str]:
        """Return a user's own store; record any problem."""
        key, shown = ".".join(path), path[-1]
        if key not in self._made:
            self._made[key] = None
            try:
                store = self._made[key] = make_own(section, Store, "a store")
                self.opened.append(store)
            except InvalidArgumentError as error:
                self._note(*placed(error, path, section))
        return self._made[key], shown

    def _tiered(self, path: tuple[str, ...], section: TieredSettings) -> tuple[Store | None, str]:
        """Return a store on two other stores, each of which may be given by name."""
        key = ".".join(path)
        if key not in self._made:
            self._made[key] = None
            parts = [self._part((*path, each), getattr(section, each)) for each in PARTS]
            root, cache = parts
            if root is not None and cache is not None:
                options = section.model_dump(exclude=set(PARTS)) | self._options
                try:
                    self._made[key] = open_tiered(
                        root, cache, root_url=self._url_of(section.root), **options
                    )
                except MissingExtraError as error:
                    self._note(path, str(error))
                except InvalidArgumentError as error:
                    self._note((*path, error.argument), error.rule)
        shown = (self._shown(_plain(getattr(section, each))) for each in PARTS)
        return self._made[key], "tiered: {} under {}".format(*shown)

    def _url_of(self, part: StoreValue) -> str | None:
        root = _root(self._settings, _plain(part))
        return root if isinstance(root, str) and root not in self._settings.stores else None

    def _part(self, path: tuple[str, ...], given: StoreValue) -> Store | None:
        found = _plain(given)
        if isinstance(found, str) and isinstance(self._settings.stores.get(found), TieredSettings):
            self._note(path, "is a tiered store itself; name one that is not")
            return None
        return self._named(path, found)[0]

    def _shown(self, found: str | Store) -> str:
        is_name = isinstance(found, str) and found in self._settings.stores
        return str(found) if is_name else _shown(found)

    def _open(self, path: tuple[str, ...], found: str | Store) -> tuple[Store | None, str]:
        if not isinstance(found, str):
            if found not in self.borrowed:
                self.borrowed.append(found)
            return found, _shown(found)
        if found not in self._made:
            self._made[found] = None
            try:
                store = self._made[found] = store_from_url(
                    found, instrument=self._options.get("instrument")
                )
                self.opened.append(store)
            except MissingExtraError as error:
                self._note(path, str(error))
            except InvalidArgumentError as error:
                self._note(path, self._reason(found, error))
        return self._made[found], _shown(found)

    def _reason(self, url: str, error: InvalidArgumentError) -> str:
        """Describe the error without the value, which may contain a password."""
        if ":" in url:
            return f"{error.argument} {error.rule}"
        known = ", ".join(self._settings.stores) or "none"
        return f"is not a name in [stores], which has {known}; a URL {error.rule}"


def single_store(settings: Settings) -> tuple[str, Callable[[], Store]]:
    """Return the store at the top of settings, or the only one: its URL, and its factory.

    Raises:
        InvalidArgumentError: there is no store, or there are several.
    """
    if settings.store is not None:
        return _top(settings)[1], lambda: cast("Store", _top(settings)[0])
    found = store_factories(settings)
    if len(found) != 1:
        named = ", ".join(where for where, _ in found) or "none"
        rule = f"is not set at the top of the settings, which name {named}; set it, or give a URL"
        raise InvalidArgumentError("store", None, rule)
    return found[0]


def _top(settings: Settings) -> tuple[Store | None, str]:
    def ignore(_path: tuple[str, ...], _reason: str) -> None:
        """Do nothing, because the settings were checked."""

    return Stores(settings, ignore).of((), None)


def store_factories(settings: Settings) -> list[tuple[str, Callable[[], Store]]]:
    """Return a factory for each store in the settings, and its URL or name.

    URLs have no credentials; a tiered store has its root's URL.  Stores that were passed as objects
    are left out, because their owner creates their tables.
    """
    sections: list[Any] = [settings, settings.share, *settings.generators.values()]
    sections.append(settings.leaf_tags)
    sections += [each.inner for each in sections if hasattr(each, "inner")]
    keys = ("store", "lane_store")
    values = [getattr(each, key, None) for each in sections for key in keys]
    given = [each for each in values if each is not None]
    roots = dict.fromkeys(_root(settings, each) for each in [*map(_plain, given), *settings.stores])
    found: list[tuple[str, Callable[[], Store]]] = []
    for root in roots:
        if not isinstance(root, str):
            continue
        own = settings.stores.get(root)
        if isinstance(own, OwnStoreSettings):
            found.append((root, partial(make_own, own, Store, "a store")))
        else:
            found.append((shown_url(root), partial(store_from_url, root)))
    return found


def _plain(value: StoreValue) -> str | Store:
    return value if isinstance(value, Store) else value.get_secret_value()


def _shown(found: str | Store) -> str:
    return shown_url(found) if isinstance(found, str) else type(found).__name__


def _root(settings: Settings, found: str | Store) -> str | Store:
    """Return the store that has the counters: a URL, a store, or the name of a user's own."""
    for _ in range(2):  # a tiered store's name, then its root's
        named = settings.stores.get(found) if isinstance(found, str) else None
        if named is None or isinstance(named, OwnStoreSettings):
            break
        found = _plain(named.root if isinstance(named, TieredSettings) else named)
    return found
