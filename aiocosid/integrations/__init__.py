"""One module a framework or library; each is imported by name and needs what it is named after."""

from __future__ import annotations

__all__ = ()
