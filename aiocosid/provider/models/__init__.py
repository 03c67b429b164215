"""Ids on models: an annotation on the field, and one call that fills empty fields."""

from __future__ import annotations

from ._ensure import ensure_ids as ensure_ids
from ._fields import GeneratedId as GeneratedId
from ._fields import IdField as IdField
from ._fields import annotation_of as annotation_of
from ._fields import cosid as cosid
from ._fields import id_fields as id_fields

__all__ = ("GeneratedId", "IdField", "annotation_of", "cosid", "ensure_ids", "id_fields")
