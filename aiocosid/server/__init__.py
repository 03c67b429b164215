"""The id service: ids, segments and machine ids over HTTP and RESP.  Requires the ``server`` extra.

`App` is the ASGI application that ``aiocosid serve`` runs; `run` is that command.
"""

from __future__ import annotations

from . import _extra as _extra
from ._app import App as App
from ._broker import run_broker as run_broker
from ._run import app_of as app_of
from ._run import run as run
from ._service import Limits as Limits
from ._span_store import SpanStore as SpanStore
from ._token_table import token_table as token_table
from ._tokens import Token as Token
from ._tokens import TokenScope as TokenScope
from ._tokens import digest_of as digest_of
from ._tokens import new_token as new_token

__all__ = (
    "App",
    "Limits",
    "SpanStore",
    "Token",
    "TokenScope",
    "app_of",
    "digest_of",
    "new_token",
    "run",
    "run_broker",
    "token_table",
)
