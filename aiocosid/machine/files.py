"""Small files that survive a crash, for stores that keep machine ids in files of their own."""

# ruff: noqa: PLC0414 - re-exported

from __future__ import annotations

from ._files import read_text as read_text
from ._files import write_text as write_text
from ._storage import in_thread as in_thread

__all__ = ("in_thread", "read_text", "write_text")
