"""Checks that the libraries of the extra are installed, before other modules import them."""

from __future__ import annotations

from importlib import import_module

from ...errors import MissingExtraError

__all__ = ()

for _name in ("pydantic", "pydantic_settings"):
    try:
        import_module(_name)
    except ModuleNotFoundError as _exc:
        raise MissingExtraError(_name.replace("_", "-"), extra="settings") from _exc
