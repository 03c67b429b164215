"""Ids that tell nothing: a keyed permutation of all of them.  Requires the ``opaque`` extra."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from ..abc import MAX_ID, IdConverter
from ..errors import InvalidArgumentError, InvalidIdError
from ._checks import are_plain, check_converter, check_id
from ._ff1 import Ff1
from ._radix import Radix62IdConverter

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("OpaqueIdConverter",)

BITS: Final = 63
KEY_SIZES: Final = (16, 24, 32)
HEX_KEY: Final = re.compile(r"(?:[0-9A-Fa-f]{16}){2,4}")
KEY: Final = "16, 24 or 32 random bytes, as secrets.token_bytes(32) makes them"


class OpaqueIdConverter(IdConverter):
    """Writes ids so that they cannot be counted, guessed or put in order without the key.

    Each id becomes another number of 63 bits, by FF1 of NIST SP 800-38G with AES, which a second
    converter writes.  Equal ids have equal texts; any text of the right form is some id; and a text
    gives no right to anything.  After a change of the key old texts can only be read with the old
    key.  The key is in no repr, error, tree or pickle.

    Attributes:
        inner: writes and reads the changed numbers.
    """

    __slots__ = ("_ff1", "_key", "inner")

    is_timeless: ClassVar[bool] = True

    _ff1: Ff1
    _key: bytes
    inner: IdConverter

    def __init__(self, key: bytes, inner: IdConverter | None = None) -> None:
        """Choose key and writing.

        Args:
            key: 16, 24 or 32 bytes, random and secret; one of its own for each kind of id.
            inner: has a text for every id; `Radix62IdConverter` by default.

        Raises:
            InvalidArgumentError: the key has another length, or some id has no text.
            MissingExtraError: cryptography is not installed.
        """
        _check_key(key)
        inner = Radix62IdConverter() if inner is None else inner
        check_converter(inner)
        try:
            inner.as_str(MAX_ID)
        except InvalidIdError as error:
            expected = f"a converter with a text for every id: {error}"
            raise InvalidArgumentError("inner", inner, expected=expected) from None
        put = super().__setattr__
        put("_ff1", Ff1(key, radix=2, length=BITS))
        put("_key", key)
        put("inner", inner)

    @classmethod
    def from_text(cls, key: str, inner: IdConverter | None = None) -> Self:
        """Make one of a key as settings hold it.

        Args:
            key: 32, 48 or 64 hexadecimal digits, or else base64 of 16, 24 or 32 bytes.
            inner: as above.

        Raises:
            InvalidArgumentError: it is neither, or as above.
            MissingExtraError: cryptography is not installed.
        """
        return cls(_read_key(key), inner)

    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id from 0 to 2^63-1."""
        check_id(new_id)
        return self.inner.as_str(self._ff1.encrypt(new_id))

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids; faster for each than `as_str`."""
        ids = list(ids)
        if not are_plain(ids):
            for each in ids:
                check_id(each)
        return self.inner.convert_many(self._ff1.encrypt_many(ids))

    def as_int(self, text: str, /) -> int:
        """Return the id of a text."""
        number = self.inner.as_int(text)
        check_id(number)
        return self._ff1.decrypt(number)

    def as_tree(self) -> dict[str, Any]:
        """Return kind and the converter inside."""
        return {"kind": type(self).__name__, "actual": self.inner.as_tree()}

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: a converter never changes."""
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> None:
        """Refuse: a converter never changes."""
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse: a pickle would hold the key."""
        raise TypeError(f"{type(self).__name__} is not pickled: it holds a key")

    def __copy__(self) -> Self:
        """Return itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself."""
        return self

    def __eq__(self, other: object) -> bool:
        """Tell whether the other one writes the same texts."""
        if not isinstance(other, OpaqueIdConverter):
            return NotImplemented
        return other._key == self._key and other.inner == self.inner

    def __hash__(self) -> int:
        """Hash by key and writing."""
        return hash((self._key, self.inner))

    def __repr__(self) -> str:
        """Show the writing, and never the key."""
        return f"{type(self).__name__}(inner={self.inner!r})"


# Errors never show the key: they are logged.


def _check_key(key: object) -> None:
    if not isinstance(key, bytes):
        raise InvalidArgumentError("key", f"of the type {type(key).__name__}", expected=KEY)
    if len(key) not in KEY_SIZES:
        raise InvalidArgumentError("key", f"{len(key)} bytes", expected=KEY)


def _read_key(text: object) -> bytes:
    expected = "hexadecimal digits or base64 of 16, 24 or 32 bytes"
    if not isinstance(text, str):
        raise InvalidArgumentError("key", f"of the type {type(text).__name__}", expected=expected)
    if HEX_KEY.fullmatch(text):
        return bytes.fromhex(text)
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error among them
        key = b""
    if len(key) not in KEY_SIZES:
        what = f"a text of {len(text)} characters"
        raise InvalidArgumentError("key", what, expected=expected)
    return key
