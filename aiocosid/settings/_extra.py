"""Makes sure that the libraries of the extra are there; imported before all that needs them."""

from __future__ import annotations

from ..errors import MissingExtraError

try:
    import pydantic  # noqa: F401 - to see whether it is there
    import pydantic_settings  # noqa: F401 - as above
except ModuleNotFoundError as _exc:
    _package = (_exc.name or "pydantic").partition(".")[0].replace("_", "-")
    raise MissingExtraError(_package, extra="settings") from _exc

__all__ = ()
