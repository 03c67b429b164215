"""What a worker or a command may need, imported once by the process that forks them all."""

from importlib import import_module
from importlib.util import find_spec

from . import _worker

__all__ = ("_worker",)

STORES = ("redis", "postgres", "mysql", "sqlite", "sqlalchemy", "etcd", "nats", "tiered", "remote")
MODULES = ("aiocosid.cli", *(f"aiocosid.stores.{name}" for name in STORES))

for module in MODULES:
    if find_spec(module):
        import_module(module)
