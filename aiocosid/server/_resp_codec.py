"""The parts of RESP: replies, and the commands that a client sends.  No I/O.

Commands are split here and not with hiredis, which is made to parse replies: it allocates what a
header announces, so 14 bytes can block the event loop for 4 seconds, and a megabyte can cost 12 GB.
"""

from __future__ import annotations

from typing import Final, cast

__all__ = ("Commands", "RespError", "encoded")

RESP3: Final = 3

MOST_WORDS: Final = 1024
"""Maximum words of a command."""

LONGEST_HEADER: Final = 32
"""Maximum bytes of a line that announces how many words or bytes follow."""

STRANGER_WORDS: Final = 10
STRANGER_BYTES: Final = 16_384
"""Maximum bytes of a command before its sender has shown a token; Redis has the same limit."""

SHORT: Final = 256
"""Maximum bytes of a command that is remembered in case it is repeated."""

END: Final = b"\r\n"
ARRAY, BULK = ord("*"), ord("$")


class RespError(Exception):
    """An error reply: a code in capitals, and a text."""


def encoded(value: object, *, protocol: int = 2) -> bytes:
    """Return an encoded reply.

    Args:
        value: an integer, bytes, text for a simple string, None, a list, a dict or a `RespError`.
        protocol: 2 or 3.
    """
    if isinstance(value, dict):
        mapping = cast("dict[object, object]", value)
        is_map = protocol == RESP3
        start = b"%%%d\r\n" % len(mapping) if is_map else b"*%d\r\n" % (2 * len(mapping))
        parts = [part for pair in mapping.items() for part in pair]
        return start + b"".join(encoded(part, protocol=protocol) for part in parts)
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return b"*%d\r\n" % len(parts) + b"".join(encoded(p, protocol=protocol) for p in parts)
    return _scalar(value, protocol)


def _scalar(value: object, protocol: int) -> bytes:
    match value:
        case int():
            return b":%d\r\n" % value
        case str():
            return b"+%s\r\n" % _one_line(value)
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(value), value)
        case RespError():
            return b"-%s\r\n" % _one_line(str(value))
        case None:
            return b"_\r\n" if protocol == RESP3 else b"$-1\r\n"
        case _:
            raise TypeError(value)


def _one_line(text: str) -> bytes:
    return text.replace("\r", " ").replace("\n", " ").encode(errors="replace")


class Commands:
    """Splits received bytes into commands: arrays of bulk strings, and nothing else.

    Attributes:
        error: what is wrong with the bytes after the last command; empty if nothing is.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_last",
        "_last_words",
        "_left",
        "_most",
        "_needed",
        "_size",
        "_words",
        "error",
    )

    def __init__(self, *, most: int) -> None:
        """Start without data.

        Args:
            most: maximum bytes of a command.
        """
        self.error = ""
        self._most = most
        self._buffer = b""
        self._at = 0  # the position of the first byte that has not been split
        self._needed = 0  # buffer length that is needed to split more
        self._words: list[bytes] = []  # of an incomplete command
        self._left = 0  # words that this command still lacks
        self._size: int = 0  # bytes of this command so far
        self._last = b""  # the last command, which a pipeline often repeats
        self._last_words: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        self._buffer = self._buffer[self._at :] + data if self._at < len(self._buffer) else data
        self._needed -= self._at
        self._at = 0

    @property
    def is_partial(self) -> bool:
        """Whether a part of a command has arrived that `take` has not returned."""
        return self._at < len(self._buffer) or self._left > 0

    @property
    def held(self) -> int:
        """Bytes of that part."""
        return len(self._buffer) - self._at + (self._size if self._left else 0)

    def take(self, at_most: int, *, is_stranger: bool = False) -> list[list[bytes]]:
        """Return the next complete commands; for a repeated command, the same list again.

        Args:
            at_most: the maximum number of commands.
            is_stranger: whether the sender has not shown a token yet; then one command at a time.
        """
        at_most = 1 if is_stranger else at_most
        found: list[list[bytes]] = []
        buffer, last = self._buffer, self._last
        while len(found) < at_most and not self.error:
            if not self._left and last and buffer.startswith(last, self._at):
                self._at += len(last)
                found.append(self._last_words)
                continue
            start, is_whole = self._at, not self._left
            if len(buffer) < self._needed or not self._split(is_stranger=is_stranger):
                break
            words, self._words = self._words, []
            if not words:  # an empty array, which Redis ignores
                continue
            if is_whole and self._at - start <= SHORT:
                last = self._last = buffer[start : self._at]
                self._last_words = words
            found.append(words)
        return found

    def _split(self, *, is_stranger: bool) -> bool:
        """Continue with a command; return whether it is complete now."""
        most_words = STRANGER_WORDS if is_stranger else MOST_WORDS
        most = STRANGER_BYTES if is_stranger else self._most
        if not self._left:
            number = self._header(ARRAY, "multibulk length", most_words)
            if number is None:
                return False
            self._left, self._size = max(0, number), 0
        buffer = self._buffer
        while self._left:
            start = self._at
            size = self._header(BULK, "bulk length", most - self._size)
            if size is None:
                return False
            if size < 0:
                self.error = "invalid bulk length"
                return False
            stop = self._at + size
            if len(buffer) < stop + 2:
                self._at, self._needed = start, stop + 2
                return False
            if buffer[stop : stop + 2] != END:
                self.error = "a bulk string does not end where it should"
                return False
            self._words.append(buffer[self._at : stop])
            self._at = stop + 2
            self._size += self._at - start
            self._left -= 1
        return True

    def _header(self, kind: int, what: str, at_most: int) -> int | None:
        """Return the number in a header line; None if the line is incomplete or wrong."""
        buffer, at = self._buffer, self._at
        if at == len(buffer):
            return None
        if buffer[at] != kind:
            self.error = f"expected {chr(kind)!r}, got {chr(buffer[at])!r}"
            return None
        stop = buffer.find(END, at, at + LONGEST_HEADER)
        if stop < 0:
            if len(buffer) - at >= LONGEST_HEADER:
                self.error = f"invalid {what}"
            return None
        digits = buffer[at + 1 : stop]
        if not digits.isdigit() and digits != b"-1":
            self.error = f"invalid {what}"
            return None
        number = int(digits)
        if number > at_most:
            self.error = f"invalid {what}"
            return None
        self._at = stop + 2
        return number
