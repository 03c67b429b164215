"""The limits of requests."""

from __future__ import annotations

from dataclasses import asdict

from aiocosid.provider.settings import LimitSettings
from aiocosid.server import Limits


def test_settings_have_the_same_defaults() -> None:
    """They are declared apart: settings are read where the server's packages are missing."""
    assert LimitSettings().model_dump() == asdict(Limits())
