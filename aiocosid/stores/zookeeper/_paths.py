"""Which text lies under which path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("COSID", "OURS", "STORES_OWN", "name_of", "node_of", "own_node_of", "path_of", "text_of")

COSID: Final = "/cosid"
"""The root of all that is CosId's."""

OURS: Final = "/aiocosid"
"""The root of what CosId knows nothing of."""

STORES_OWN: Final = frozenset(("clock", "counts", "leaf", "marker", "twitter"))
"""Nodes below `OURS` that are no namespace's."""

# What a server refuses in a path: no Java process can have made it.
_REFUSED: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\uf8ff\\ufff0-\\uffff\U00010000-\U0010ffff]"
)
_NO_PATH: Final = re.compile(r"/{2,}|^/|/$|(?:^|/)\.{1,2}(?=/|$)")
_RESERVED: Final = re.compile(r"(?:^|/)_(?=_(?:counter|itc_idx|revert)(?:-locker)?(?:/|$))")
_LOOKS_ESCAPED: Final = re.compile(r"%(?=[0-9A-Fa-f]{2})")


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def path_of(text: str) -> str:
    """Return the path of a counter or a namespace below `COSID`, without the first slash.

    As CosId has it: a slash begins a node of its own.  What no node can be called is escaped as in
    a URL, which then is another text's path as well: two counters that share one repeat nothing.
    """
    text = _RESERVED.sub(lambda match: match[0].replace("_", "%5F"), text)
    if _NO_PATH.search(text):
        text = text.replace("/", "%2F")
        if set(text) == {"."}:
            text = text.replace(".", "%2E")
    return _REFUSED.sub(_escaped, text)


def text_of(path: str) -> str:
    """Return the text whose path it is."""
    text = unquote(path, errors="replace")
    return text if path_of(text) == path else path


def node_of(text: str) -> str:
    """Return the name of the one node of an instance or a namespace; no two have the same.

    CosId would write the very text, or fail; so theirs is found under it, and ours can be read.
    """
    text = _LOOKS_ESCAPED.sub("%25", text).replace("/", "%2F")
    if text in {".", ".."}:
        return text.replace(".", "%2E")
    return _REFUSED.sub(_escaped, text)


def own_node_of(namespace: str) -> str:
    """Return the name of a namespace's node below `OURS`."""
    name = node_of(namespace)
    return f"%{ord(name[0]):02X}{name[1:]}" if name in STORES_OWN else name


def name_of(node: str, node_of: Callable[[str], str] = node_of) -> str:
    """Return the text whose node it is; one that another system wrote stays as it is."""
    text = unquote(node, errors="replace")
    return text if node_of(text) == node else node
