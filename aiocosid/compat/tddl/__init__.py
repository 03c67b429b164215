"""TDDL's sequences, in its table ``sequence``.  Needs the ``sqlalchemy`` extra.

TDDL (Taobao) keeps one row for each name, in one database or in several.  The row holds the *base
of the last range handed out*, so that the ids lie above it: a grant adds ``inner_step`` for each of
the databases, and owns ``(new, new + inner_step]``.  Old TDDL nodes may run at the same time.
"""

from __future__ import annotations

from ._stores import TddlGroupStore as TddlGroupStore
from ._stores import TddlStore as TddlStore

__all__ = ("TddlGroupStore", "TddlStore")
