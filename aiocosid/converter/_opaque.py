"""Ids that reveal nothing: a keyed permutation of all ids.  Requires the ``opaque`` extra.

The permutation is FF1, a Feistel network of ten rounds with AES as the round function; it maps the
numbers of a given count of digits one to one.  https://doi.org/10.6028/NIST.SP.800-38G
"""

from __future__ import annotations

import base64
import re
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeAlias

from ..abc import MAX_ID, IdConverter
from ..errors import InvalidArgumentError, InvalidIdError, MissingExtraError
from ._checks import are_plain, check_converter, check_id
from ._radix import Radix62IdConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import ECB

__all__ = ("Ff1", "OpaqueIdConverter")

BITS: Final = 63
KEY_SIZES: Final = (16, 24, 32)
HEX_KEY: Final = re.compile(r"(?:[0-9A-Fa-f]{16}){2,4}")
KEY: Final = "16, 24 or 32 random bytes, such as secrets.token_bytes(32)"
_KEY_TEXT: Final = "hexadecimal digits or base64 of 16, 24 or 32 bytes"


class OpaqueIdConverter(IdConverter):
    """Formats ids so that they cannot be counted, guessed or put in order without the key.

    FF1 of NIST SP 800-38G with AES maps each id to another 63-bit number, which a second converter
    formats.  Equal ids have equal texts, and every text of the right form is the text of some id,
    so a valid text proves no permission.  After a change of the key, old texts can be read only
    with the old key.  The key never appears in a repr, error, tree or pickle.

    Attributes:
        inner: formats and reads the mapped numbers.
    """

    __slots__ = ("_ff1", "_key", "inner")

    is_timeless: ClassVar[bool] = True

    _ff1: Ff1
    _key: bytes
    inner: IdConverter

    def __init__(self, key: bytes, inner: IdConverter | None = None) -> None:
        """Choose the key and the inner converter.

        Args:
            key: 16, 24 or 32 random secret bytes; use another key for each kind of id.
            inner: a converter that has a text for every id; `Radix62IdConverter` by default.

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
            rule = f"must have a text for every id: {error}"
            raise InvalidArgumentError("inner", inner, rule) from None
        put = super().__setattr__
        put("_ff1", Ff1(key, radix=2, length=BITS))
        put("_key", key)
        put("inner", inner)

    @classmethod
    def from_text(cls, key: str, inner: IdConverter | None = None) -> Self:
        """Create a converter from a key in the form that settings use.

        Args:
            key: 32, 48 or 64 hexadecimal digits, or else base64 of 16, 24 or 32 bytes.
            inner: as above.

        Raises:
            InvalidArgumentError: the key has neither form, or as above.
            MissingExtraError: cryptography is not installed.
        """
        return cls(_read_key(key), inner)

    def as_str(self, new_id: int, /) -> str:
        """Return the text of an id from 0 to 2^63-1."""
        check_id(new_id)
        return self.inner.as_str(self._ff1.encrypt(new_id))

    def convert_many(self, ids: Iterable[int], /) -> list[str]:
        """Return the texts of many ids; faster per id than `as_str`."""
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

    def as_tree(self) -> dict[str, object]:
        """Return kind and the inner converter."""
        return {"kind": type(self).__name__, "actual": self.inner.as_tree()}

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse, because a converter never changes."""
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> None:
        """Refuse, because a converter never changes."""
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        """Refuse, because a pickle would contain the key."""
        raise TypeError(f"{type(self).__name__} is not pickled: it holds a key")

    def __copy__(self) -> Self:
        """Return itself."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return itself."""
        return self

    def __eq__(self, other: object) -> bool:
        """Return whether the other converter writes the same texts."""
        if not isinstance(other, OpaqueIdConverter):
            return NotImplemented
        return other._key == self._key and other.inner == self.inner

    def __hash__(self) -> int:
        """Hash by key and inner converter."""
        return hash((self._key, self.inner))

    def __repr__(self) -> str:
        """Show the inner converter, and never the key."""
        return f"{type(self).__name__}(inner={self.inner!r})"


# Errors never show the key, because they are logged.


def _check_key(key: object) -> None:
    if not isinstance(key, bytes):
        raise InvalidArgumentError("key", type(key), f"must be {KEY}")
    if len(key) not in KEY_SIZES:
        raise InvalidArgumentError("key", "...", f"has {len(key)} bytes; it must be {KEY}")


def _read_key(text: object) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgumentError("key", type(text), f"must be {_KEY_TEXT}")
    if HEX_KEY.fullmatch(text):
        return bytes.fromhex(text)
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:  # including binascii.Error
        key = b""
    if len(key) not in KEY_SIZES:
        rule = f"has {len(text)} characters; it must be {_KEY_TEXT}"
        raise InvalidArgumentError("key", "...", rule)
    return key


ROUNDS: Final = 10
BLOCK: Final = 16  # bytes of an AES block
LANE: Final = 8  # bytes
Aes: TypeAlias = "Callable[[bytes], bytes]"
"""AES on whole blocks, each independently."""

MOST_BYTES: Final = 12  # of half a number; more would need a second block per round


class Ff1:
    """FF1 for one key, one domain and one tweak; halves of a number have at most 96 bits."""

    __slots__ = ("_cipher", "_half", "_idle", "_rounds", "_width")

    _rounds: tuple[tuple[int, int], ...]

    def __init__(self, key: bytes, *, radix: int, length: int, tweak: bytes = b"") -> None:
        """Prepare the parts that are the same for all numbers.

        Args:
            key: 16, 24 or 32 bytes, for AES.
            radix: 2 to 65536.
            length: digits of a number, at least 2.
            tweak: public bytes that select one of many permutations.

        Raises:
            MissingExtraError: cryptography is not installed.
        """
        left = length // 2
        right = length - left
        size = ((radix**right - 1).bit_length() + 7) // 8  # b of the standard
        if size > MOST_BYTES:
            raise ValueError(f"half of {length} digits in radix {radix} is more than 96 bits")
        self._cipher = _cipher(key)
        self._idle: list[Aes] = []
        self._half: int = radix**right
        self._width = 4 * ((size + 3) // 4) + 4  # d
        head = bytes((1, 2, 1)) + radix.to_bytes(3, "big") + bytes((ROUNDS, left % 256))
        head += length.to_bytes(4, "big") + len(tweak).to_bytes(4, "big")
        fixed = tweak + bytes((-len(tweak) - size - 1) % BLOCK) + bytes(1 + size)
        # CBC-MAC up to the last block, because only the last block holds the round and the half
        # number.
        state = 0
        aes = self._cipher.encryptor().update
        *blocks, last = _blocks(head + fixed)
        for block in blocks:
            mixed = (state ^ block).to_bytes(BLOCK, "big")
            state = int.from_bytes(aes(mixed), "big")
        self._rounds = tuple(
            (state ^ last ^ number << 8 * size, radix ** (right if number % 2 else left))
            for number in range(ROUNDS)
        )

    def encrypt(self, number: int) -> int:
        """Return the number to which a number below ``radix ** length`` is mapped."""
        a, b = divmod(number, self._half)
        aes = self._taken()
        for block, modulus in self._rounds:
            a, b = b, (a + self._mixed(aes, block ^ b)) % modulus
        self._idle.append(aes)
        return a * self._half + b

    def encrypt_many(self, numbers: Iterable[int]) -> list[int]:
        """Do the same for many numbers; one AES call per round if halves have at most 32 bits."""
        if self._width != LANE:
            return list(map(self.encrypt, numbers))
        halves = [divmod(number, self._half) for number in numbers]
        left, right = [a for a, _ in halves], [b for _, b in halves]
        blocks = Struct(f">{2 * len(halves)}Q")  # two lanes each, with the half number in the last
        mixes = Struct(">" + f"Q{LANE}x" * len(halves))
        aes = self._taken()
        for block, modulus in self._rounds:
            upper, lower = divmod(block, 1 << 8 * LANE)
            lanes = [upper] * (2 * len(halves))
            lanes[1::2] = [lower ^ b for b in right]
            mixed = mixes.unpack(aes(blocks.pack(*lanes)))
            left, right = right, [(a + y) % modulus for a, y in zip(left, mixed, strict=True)]
        self._idle.append(aes)
        return [a * self._half + b for a, b in zip(left, right, strict=True)]

    def decrypt(self, number: int) -> int:
        """Return the number that is mapped to this one."""
        a, b = divmod(number, self._half)
        aes = self._taken()
        for block, modulus in reversed(self._rounds):
            a, b = (b - self._mixed(aes, block ^ a)) % modulus, a
        self._idle.append(aes)
        return a * self._half + b

    def _mixed(self, aes: Aes, block: int) -> int:
        mixed = aes(block.to_bytes(BLOCK, "big"))
        return int.from_bytes(mixed[: self._width], "big")

    def _taken(self) -> Aes:
        """Return an AES context that no other call is using.

        A context that encrypts 2 KiB or more releases the GIL, and fails if another thread uses it
        meanwhile.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self._cipher.encryptor().update


def _blocks(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + BLOCK], "big") for at in range(0, len(data), BLOCK)]


def _cipher(key: bytes) -> Cipher[ECB]:
    """Return AES; its contexts keep no state between whole blocks."""
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("cryptography", extra="opaque") from error
    # ECB is plain AES, which the round function uses as its block cipher; no data is encrypted in
    # this mode.
    return Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305
