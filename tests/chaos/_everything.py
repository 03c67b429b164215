"""What a worker may need, imported once by the process that forks them all."""

from importlib import import_module
from importlib.util import find_spec

from . import _worker

__all__ = ("_worker",)

for module in ("redis", "postgres", "sqlite", "tiered"):
    if find_spec(f"aiocosid.stores.{module}"):
        import_module(f"aiocosid.stores.{module}")
