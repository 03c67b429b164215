"""Alembic: migrations that ignore the tables of ids, and describe columns of ids.

Add one argument in ``env.py``::

    from aiocosid.integrations import alembic as aiocosid_alembic

    context.configure(..., **aiocosid_alembic.options)

Without it, ``alembic revision --autogenerate`` proposes to drop the tables of counters and machine
ids if they are in the application's database, because they are not among the application's models.
A function of your own should call the one in this module: ``return include_name(...) and ...``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from ..stores.schema import NAMES
from .sqlalchemy import TypedIdType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alembic.autogenerate.api import AutogenContext

__all__ = ("include_name", "include_object", "options", "render_item")

_KINDS: Final = {"table", "view"}


def include_name(
    name: str | None,
    type_: str,
    parent_names: object,  # noqa: ARG001 - Alembic passes it
) -> bool:
    """Make Alembic skip the tables of ids, without even reading them.

    Args:
        name: the name that Alembic found in the database.
        type_: its type, for example ``"table"``; a column may have the name of one of the tables.
        parent_names: its schema and table.

    Returns:
        Whether Alembic compares it with the models.
    """
    return type_ not in _KINDS or name not in NAMES


def include_object(
    object: object,  # noqa: A002 - Alembic's name
    name: str | None,
    type_: str,
    reflected: bool,  # noqa: FBT001 - Alembic passes it
    compare_to: object | None,
) -> bool:
    """Make Alembic propose no change of tables of ids that exist only in the database.

    Tables with the same name in ``target_metadata``, for example from `schema_metadata`, are
    compared.

    Args:
        object: the table, column, index or constraint.
        name: its name.
        type_: its type, for example ``"table"``.
        reflected: whether it comes from the database, not from the models.
        compare_to: the object with which it is compared; None if only one side has it.

    Returns:
        Whether Alembic may propose to change it.
    """
    table = name if type_ in _KINDS else getattr(getattr(object, "table", None), "name", None)
    return not reflected or compare_to is not None or table not in NAMES


def render_item(
    kind: str,  # noqa: ARG001 - Alembic passes it
    item: object,
    autogen_context: AutogenContext,
) -> str | Literal[False]:
    """Make Alembic write columns of `TypedIdType` as the database's types.

    Migrations then import nothing from the application, and stay valid when a class is renamed.

    Args:
        kind: what is rendered, for example ``"type"``.
        item: the object itself.
        autogen_context: Alembic's context.

    Returns:
        The Python expression of the type; False for everything else, which Alembic then renders
        itself.
    """
    if not isinstance(item, TypedIdType):
        return False
    sa = autogen_context.opts["sqlalchemy_module_prefix"] or ""
    return f"{sa}BigInteger().with_variant({sa}Integer(), 'sqlite')"


options: Final[Mapping[str, Any]] = {
    "include_name": include_name,
    "include_object": include_object,
    "render_item": render_item,
}
"""The arguments for ``context.configure``.  If you migrate the tables of ids yourself, with
`schema_metadata`, pass only ``render_item``.
"""
