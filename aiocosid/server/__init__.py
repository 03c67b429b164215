"""The id service: ids, segments and machine ids over HTTP and RESP.  Needs the ``server`` extra.

`App` is the ASGI application that ``aiocosid serve`` runs.
"""

from __future__ import annotations

from ..errors import MissingExtraError

try:
    import starlette as _starlette
except ModuleNotFoundError as _exc:
    raise MissingExtraError("starlette", extra="server") from _exc

from ._app import App as App
from ._service import Limits as Limits
from ._tokens import Token as Token
from ._tokens import Verb as Verb
from ._tokens import digest_of as digest_of
from ._tokens import new_token as new_token

del _starlette

__all__ = ("App", "Limits", "Token", "Verb", "digest_of", "new_token")
