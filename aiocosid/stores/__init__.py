"""The stores, one module for each server; import the one you need by its name."""

from __future__ import annotations

__all__ = ()
