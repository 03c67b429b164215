"""The stores that settings name, each made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError, MissingExtraError
from ..provider import open_store
from ._secrets import shown_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..abc import Store
    from ._models import Settings

__all__ = ("Stores",)


class Stores:
    """Makes stores of URLs; nothing is sent.

    Attributes:
        opened: those that were made.
    """

    def __init__(self, settings: Settings, note: Callable[[tuple[str, ...], str], None]) -> None:
        self.opened: list[Store] = []
        self._settings = settings
        self._note = note
        self._made: dict[str, Store | None] = {}  # by URL

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
        """Return a generator's URL with all that is secret, to tell stores apart."""
        found = section.store or self._settings.store
        text = "" if found is None else str(found.get_secret_value())
        named = self._settings.stores.get(text)
        return text if named is None else named.get_secret_value()

    def check_unused(self) -> None:
        """Look at the stores that no generator uses, too."""
        for name, url in self._settings.stores.items():
            self._open(("stores", name), url.get_secret_value())

    def _named(self, path: tuple[str, ...], text: str) -> tuple[Store | None, str]:
        named = self._settings.stores.get(text)
        if named is not None:
            return self._open(("stores", text), named.get_secret_value())
        return self._open(path, text)

    def _open(self, path: tuple[str, ...], url: str) -> tuple[Store | None, str]:
        if url not in self._made:
            self._made[url] = None
            try:
                store = self._made[url] = open_store(url)
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
