"""What ``manage.py`` offers with ``aiocosid.integrations.django`` in ``INSTALLED_APPS``."""

from __future__ import annotations

__all__ = ()
