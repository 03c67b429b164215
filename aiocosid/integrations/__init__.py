"""Frameworks: one module each, imported by name."""

from __future__ import annotations

__all__ = ()
