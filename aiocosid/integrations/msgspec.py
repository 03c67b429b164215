"""msgspec: hooks that write and read the ids of `TypedId` and `Int64Text` as text.

::

    encoder = msgspec.json.Encoder(enc_hook=enc_hook)
    decoder = msgspec.json.Decoder(Order, dec_hook=dec_hook)

Without the hooks msgspec refuses such an id; it never writes the id as a number.
"""

from __future__ import annotations

from ..converter import TypedId

__all__ = ("dec_hook", "enc_hook", "schema_hook")


def enc_hook(value: object) -> str:
    """Return the text of an id.

    Raises:
        NotImplementedError: the value is something else, which your own hook may handle.
    """
    if isinstance(value, TypedId):
        return str(value)
    raise NotImplementedError(f"cannot encode objects of type {type(value).__qualname__}")


def dec_hook(kind: type, value: object) -> object:
    """Return the id for a text; msgspec names the field if the text is not an id.

    Raises:
        InvalidIdError: the text is not an id of that class; msgspec raises a ``ValidationError``
            from it.
        NotImplementedError: the type is another one, which your own hook may handle.
    """
    if issubclass(kind, TypedId):
        return kind.parse(value)
    raise NotImplementedError(f"cannot decode objects of type {kind.__qualname__}")


def schema_hook(kind: type) -> dict[str, object]:
    """Return the JSON Schema of an id.

    Raises:
        NotImplementedError: the type is another one, which your own hook may handle.
    """
    if issubclass(kind, TypedId):
        return kind.json_schema()
    raise NotImplementedError(f"cannot describe objects of type {kind.__qualname__}")
