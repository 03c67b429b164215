"""The commands that ``aiocosid.integrations.django`` adds to ``manage.py``."""

from __future__ import annotations

__all__ = ()
