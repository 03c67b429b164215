"""The paths of counters, namespaces and instances."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("COSID", "OURS", "STORES_OWN", "name_of", "node_of", "own_node_of", "path_of", "text_of")

COSID: Final = "/cosid"
"""The root of CosId's nodes."""

OURS: Final = "/aiocosid"
"""The root of aiocosid's own nodes."""

STORES_OWN: Final = frozenset(("clock", "counts", "leaf", "marker", "namespaces", "twitter"))
"""Nodes below `OURS` that belong to no namespace."""

# Characters that a server refuses in a path: no Java process can have used them.
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

    As in CosId a slash begins a child node.  Invalid names are escaped as in a URL.  The result may
    be another text's path as well: two counters that share a node repeat no ids.
    """
    text = _RESERVED.sub(lambda match: match[0].replace("_", "%5F"), text)
    if _NO_PATH.search(text):
        text = text.replace("/", "%2F")
        if set(text) == {"."}:
            text = text.replace(".", "%2E")
    return _REFUSED.sub(_escaped, text)


def text_of(path: str) -> str:
    """Return the text of a path."""
    text = unquote(path, errors="replace")
    return text if path_of(text) == path else path


def node_of(text: str) -> str:
    """Return the name of the node of an instance or a namespace; each has a different one.

    It is the plain text where CosId would accept that, so both find each other's nodes.
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
    """Return the text of a node's name; a name of another system is returned unchanged."""
    text = unquote(node, errors="replace")
    return text if node_of(text) == node else node
