"""Ids on models: a mark on the field, and one call that fills what is empty."""

from __future__ import annotations

from ._ensure import ensure_ids as ensure_ids
from ._fields import CosId as CosId
from ._fields import IdField as IdField
from ._fields import cosid as cosid
from ._fields import id_fields as id_fields
from ._fields import mark_of as mark_of

__all__ = ("CosId", "IdField", "cosid", "ensure_ids", "id_fields", "mark_of")
