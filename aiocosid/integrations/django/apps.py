"""The application for ``INSTALLED_APPS``: it adds the command ``manage.py aiocosid_floors``."""

# pyright: basic
# In strict mode each name of the framework would be an error, because it has no annotations.

from __future__ import annotations

from django.apps import AppConfig

__all__ = ("AiocosidConfig",)


class AiocosidConfig(AppConfig):  # type: ignore[misc]  # Django has no annotations
    """``INSTALLED_APPS = ["aiocosid.integrations.django", ...]``; it has no models."""

    name = "aiocosid.integrations.django"
    label = "aiocosid"
    verbose_name = "aiocosid"
