"""The stores that settings name, each made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._store_urls import open_store, open_tiered
from ..errors import InvalidArgumentError, MissingExtraError
from ._models import TieredSettings
from ._secrets import shown_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import SecretStr

    from ..abc import Store
    from ._models import Settings

__all__ = ("Stores", "store_urls")

PARTS: Final = ("root", "cache")


class Stores:
    """Makes stores of URLs; nothing is sent.

    Attributes:
        opened: those that were made.
    """

    def __init__(
        self,
        settings: Settings,
        note: Callable[[tuple[str, ...], str], None],
        **options: Any,  # noqa: ANN401 - of a tiered store
    ) -> None:
        self.opened: list[Store] = []
        self._options = options
        self._settings = settings
        self._note = note
        self._made: dict[str, Store | None] = {}  # by URL, or by name

    def of(self, path: tuple[str, ...], section: Any) -> tuple[Store | None, str]:  # noqa: ANN401 - of any kind
        """Return a generator's store, and its URL without secrets; what is wrong is noted."""
        own, default = section.store, self._settings.store
        if own is not None:
            return self._named((*path, "store"), own.get_secret_value())
        if default is not None:
            return self._named(("store",), default.get_secret_value())
        example = 'store = "redis://localhost/0"'
        self._note(path, f"needs a store: write {example} at the top of the file, or here")
        return None, ""

    def place(self, section: Any) -> str:  # noqa: ANN401 - of any kind
        """Return the URL of a generator's store with all that is secret, to tell stores apart.

        Of a tiered one it is the root's, as machine ids are.
        """
        found = section.store or self._settings.store
        text = "" if found is None else str(found.get_secret_value())
        for _ in range(2):  # a tiered store's name, and its root's
            named = self._settings.stores.get(text)
            if named is None:
                break
            text = _root_of(named)
        return text

    def check_unused(self) -> None:
        """Look at the stores that no generator uses, too."""
        for name in self._settings.stores:
            self._named(("stores", name), name)

    def _named(self, path: tuple[str, ...], text: str) -> tuple[Store | None, str]:
        named = self._settings.stores.get(text)
        if isinstance(named, TieredSettings):
            return self._tiered(("stores", text), named)
        if named is not None:
            return self._open(("stores", text), named.get_secret_value())
        return self._open(path, text)

    def _tiered(self, path: tuple[str, ...], section: TieredSettings) -> tuple[Store | None, str]:
        """Return a store on two others, each of which may have a name too."""
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
                    expected = str(error).partition("it has to be ")[2]
                    self._note((*path, error.argument), f"has to be {expected}")
        shown = (self._shown(getattr(section, each).get_secret_value()) for each in PARTS)
        return self._made[key], "tiered: {} under {}".format(*shown)

    def _url_of(self, part: SecretStr) -> str:
        named = self._settings.stores.get(part.get_secret_value())
        return part.get_secret_value() if named is None else _root_of(named)

    def _part(self, path: tuple[str, ...], text: SecretStr) -> Store | None:
        named = self._settings.stores.get(text.get_secret_value())
        if isinstance(named, TieredSettings):
            self._note(path, "is a tiered store itself; name one that is none")
            return None
        return self._named(path, text.get_secret_value())[0]

    def _shown(self, text: str) -> str:
        named = self._settings.stores.get(text)
        return text if named is not None else shown_url(text)

    def _open(self, path: tuple[str, ...], url: str) -> tuple[Store | None, str]:
        if url not in self._made:
            self._made[url] = None
            try:
                store = self._made[url] = open_store(
                    url, instrument=self._options.get("instrument")
                )
                self.opened.append(store)
            except MissingExtraError as error:
                self._note(path, str(error))
            except InvalidArgumentError as error:
                self._note(path, self._reason(url, error))
        return self._made[url], shown_url(url)

    def _reason(self, url: str, error: InvalidArgumentError) -> str:
        """Say what is wrong without the value, which may hold a password."""
        expected = str(error).partition("it has to be ")[2]
        if ":" in url:
            return f"has to be a URL: {expected}"
        known = ", ".join(self._settings.stores) or "none"
        return f"has to be a URL, {expected}, or a name in [stores], which has {known}"


def _root_of(store: SecretStr | TieredSettings) -> str:
    return (store.root if isinstance(store, TieredSettings) else store).get_secret_value()


def store_urls(settings: Settings) -> list[str]:
    """Return the URLs of all stores that settings name, each once; of a tiered one its root's."""
    sections = [settings, settings.share, settings.machine, *settings.generators.values()]
    named = [getattr(each, "store", None) for each in sections if each is not None]
    wanted = [each.get_secret_value() for each in named if each is not None]
    wanted += list(settings.stores)
    urls: dict[str, None] = {}
    for text in wanted:
        found = text
        for _ in range(2):  # a tiered store's name, and its root's
            known = settings.stores.get(found)
            if known is None:
                break
            found = _root_of(known)
        urls[found] = None
    return list(urls)
