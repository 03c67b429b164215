"""Hibernate's table ``hibernate_sequences``, and the database sequences that it draws from.

Needs the ``sqlalchemy`` extra.  What a number means depends on the optimizer of the nodes: with
*pooled-lo* a range begins with it, with *pooled*, Hibernate's default, it ends with it.  Whoever
takes one for the other hands out ids twice, so it has to be told.
"""

from __future__ import annotations

from ._convention import INCREMENT as INCREMENT
from ._convention import Optimizer as Optimizer
from ._convention import Source as Source
from ._segments import HibernateIdSegmentDistributor as HibernateIdSegmentDistributor
from ._segments import (
    HibernateSequenceIdSegmentDistributor as HibernateSequenceIdSegmentDistributor,
)
from ._store import HibernateStore as HibernateStore

__all__ = (
    "INCREMENT",
    "HibernateIdSegmentDistributor",
    "HibernateSequenceIdSegmentDistributor",
    "HibernateStore",
    "Optimizer",
    "Source",
)
