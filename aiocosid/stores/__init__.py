"""The stores: one module for each server, imported by name."""

from __future__ import annotations

__all__ = ()
