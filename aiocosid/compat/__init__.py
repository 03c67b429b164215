"""Other systems' tables, one module each, imported by name.

Whoever runs one of these systems points its module at the same database and goes on: no table
changes, no id comes twice, and old nodes may run beside.  A module asks for its driver with
`MissingExtraError` when it is imported without it.
"""

from __future__ import annotations

from ._examine import Examinable as Examinable
from ._examine import Examined as Examined

__all__ = ("Examinable", "Examined")
