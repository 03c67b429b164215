"""Other systems' tables and registries, one module each, imported by name.

To replace one of these systems, point its module at the same database: no table changes, no id
repeats, and old nodes can run at the same time.  Importing a module without its driver raises
`MissingExtraError`.
"""

from __future__ import annotations

from ._table import Examinable as Examinable
from ._table import Examined as Examined

__all__ = ("Examinable", "Examined")
