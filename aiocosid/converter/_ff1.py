"""FF1, the permutation of NIST SP 800-38G, over numbers.  Pure.

A Feistel network of ten rounds whose round function is AES; it turns each number of some digits in
a radix into another one, each once.  https://doi.org/10.6028/NIST.SP.800-38G
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from ..errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import ECB

__all__ = ("Ff1",)

ROUNDS: Final = 10
BLOCK: Final = 16  # bytes of an AES block
LANE: Final = 8  # bytes
Aes: TypeAlias = "Callable[[bytes], bytes]"
"""AES on whole blocks, each for itself."""

MOST_BYTES: Final = 12  # of half a number: more need a second block a round


class Ff1:
    """FF1 for one key, one domain and one tweak; halves of a number have at most 96 bits."""

    __slots__ = ("_cipher", "_half", "_idle", "_rounds", "_width")

    _rounds: tuple[tuple[int, int], ...]

    def __init__(self, key: bytes, *, radix: int, length: int, tweak: bytes = b"") -> None:
        """Prepare what is the same for all numbers.

        Args:
            key: 16, 24 or 32 bytes, for AES.
            radix: 2 to 65536.
            length: digits of a number, at least 2.
            tweak: public bytes that choose one of many permutations.

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
        # CBC-MAC, up to the last block: only that one holds the round and the half number.
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
        """Return the number that another one, below radix to the power of length, is turned to."""
        a, b = divmod(number, self._half)
        aes = self._taken()
        for block, modulus in self._rounds:
            a, b = b, (a + self._mixed(aes, block ^ b)) % modulus
        self._idle.append(aes)
        return a * self._half + b

    def encrypt_many(self, numbers: Iterable[int]) -> list[int]:
        """Do the same for many; where halves have at most 32 bits, with one call of AES a round."""
        if self._width != LANE:
            return list(map(self.encrypt, numbers))
        halves = [divmod(number, self._half) for number in numbers]
        left, right = [a for a, _ in halves], [b for _, b in halves]
        blocks = Struct(f">{2 * len(halves)}Q")  # of two lanes each; the half number is in the last
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
        """Return the number that is turned into this one."""
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
        """Return a context of AES that no other call is using.

        While one encrypts 2 KiB or more it lets other threads run, and fails if they use it too.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self._cipher.encryptor().update


def _blocks(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + BLOCK], "big") for at in range(0, len(data), BLOCK)]


def _cipher(key: bytes) -> Cipher[ECB]:
    """Return AES; its contexts keep nothing from one whole block to the next."""
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("cryptography", extra="opaque") from error
    # ECB is AES itself, the round function's own block cipher; no data is encrypted in this mode.
    return Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305
