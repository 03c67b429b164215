"""Bearer tokens: what each one allows, for which names, and until when.  No I/O.

Only a token's SHA-256 is kept.  A token has 32 random bytes, so no salt or slow hash is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..abc.checks import check_integer
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("ANYTHING", "Access", "Token", "TokenScope", "Tokens", "digest_of", "new_token")

Refusal: TypeAlias = Literal["missing", "wrong", "expired"]

PREFIX: Final = "aiocosid_"
"""The prefix of every token, by which scanners for leaked secrets can recognise it."""

SECRET_BYTES: Final = 32
KIND: Final = "sha256:"
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
ANYTHING: Final = ("*",)


class TokenScope(StrEnum):
    """What a token allows."""

    IDS = "ids"
    """To take ids of a generator."""
    SEGMENTS = "segments"
    """To take segments of a counter."""
    MACHINES = "machines"
    """To take, renew and release machine ids."""
    READ = "read"
    """To see generators, counters, machine ids and the dashboard."""
    ADMIN = "admin"
    """To drain, to raise floors, and to initialise the store."""


def new_token() -> str:
    """Return a new secret token; show it once, and keep only its `digest_of`."""
    return f"{PREFIX}{token_urlsafe(SECRET_BYTES)}"


def digest_of(secret: str) -> str:
    """Return the form in which a token is stored: ``sha256:`` and 64 hexadecimal digits."""
    return f"{KIND}{hashlib.sha256(secret.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The rights of one token.

    Two tokens with one name may be valid at the same time: add the new token, change the clients,
    then remove the old token.

    Attributes:
        name: the name of its owner in the audit log.
        digest: the secret's `digest_of`.
        scopes: the scopes that it allows.
        names: patterns of the names for which it is valid, with ``*`` for any characters: names of
            generators, of counters as ``{namespace}.{name}``, and of machine ids as
            ``{namespace}``.
        expires_ms: when it expires, unix time in milliseconds; None for never.
        ids_per_second: how many ids of each name it may take per second; None for no limit.
        ids_per_request: how many ids one request may take; None for the server's limits alone.
    """

    name: str
    digest: str
    scopes: tuple[TokenScope, ...]
    names: tuple[str, ...] = ANYTHING
    expires_ms: int | None = None
    ids_per_second: int | None = None
    ids_per_request: int | None = None

    def __post_init__(self) -> None:
        """Check the digest and the quotas.

        Raises:
            InvalidArgumentError: the digest has another form, or a quota is below 1.
        """
        if not DIGEST.fullmatch(self.digest):
            # The value is not shown, because it may be the token itself.
            rule = (
                "must be 'sha256:' and 64 hexadecimal digits, as `aiocosid token new --name NAME` "
                "prints it"
            )
            raise InvalidArgumentError("digest", "...", rule)
        for what in ("ids_per_second", "ids_per_request"):
            if (most := getattr(self, what)) is not None:
                check_integer(what, most, at_least=1)


EVERY: Final = frozenset(TokenScope)


@dataclass(frozen=True, slots=True)
class Access:
    """What a caller may do: everything, or what its token allows.

    Attributes:
        token: the caller's token; None if it needs none.
        scopes: the scopes that the server offers at all.
    """

    token: Token | None = None
    scopes: frozenset[TokenScope] = EVERY

    @property
    def is_counted(self) -> bool:
        """Whether the ids that the caller takes have a quota."""
        token = self.token
        return token is not None and (
            token.ids_per_second is not None or token.ids_per_request is not None
        )

    @property
    def who(self) -> str:
        """The caller in the audit log."""
        return "anybody" if self.token is None else self.token.name

    def allows(self, wanted: TokenScope, name: str = "") -> bool:
        """Return whether the caller may do this with a name; an empty name means all names."""
        token = self.token
        if token is None or wanted not in self.scopes:
            return wanted in self.scopes
        return wanted in token.scopes and _pattern_of(token.names).fullmatch(name) is not None

    def refusal(self, wanted: TokenScope, name: str) -> str:
        """Return why `allows` is False."""
        if wanted not in self.scopes:
            return f"this server does not offer {str(wanted)!r}"
        if self.token is not None and wanted in self.token.scopes:
            what = f"for {name!r}" if name else "for all names"
            return f"this token has the scope {str(wanted)!r}, but not {what}"
        return f"this token lacks the scope {str(wanted)!r}"


@lru_cache(maxsize=1024)
def _pattern_of(names: tuple[str, ...]) -> re.Pattern[str]:
    texts = (".*".join(map(re.escape, each.split("*"))) for each in names)
    return re.compile("|".join(texts), re.DOTALL)


NOBODY: Final = b"", Access()


class Tokens:
    """The tokens of a server; without tokens, every caller may do what it offers.

    Attributes:
        anybody: what a caller without a token may do.
    """

    __slots__ = ("_known", "_on_unix", "anybody")

    def __init__(
        self,
        tokens: Iterable[Token] = (),
        *,
        unix: bool = True,
        offers: Iterable[TokenScope] = EVERY,
    ) -> None:
        """Store the tokens; the last of several with one digest counts.

        Args:
            tokens: the tokens.
            unix: whether callers on Unix sockets need a token too.
            offers: the scopes that the server offers at all, whatever a token allows.
        """
        offered = frozenset(offers)
        self.anybody: Access = Access(scopes=offered)
        self._on_unix = unix
        # The access of each token is created once, and not for each request.
        hashes = ((bytes.fromhex(each.digest.removeprefix(KIND)), each) for each in tokens)
        self._known = {found: (found, Access(each, offered)) for found, each in hashes}

    def replaced(self, tokens: Iterable[Token]) -> Tokens:
        """Return an object with other tokens for the same server."""
        return Tokens(tokens, unix=self._on_unix, offers=self.anybody.scopes)

    def refusal(self, secret: str | None) -> Refusal:
        """Return why `access` has returned None."""
        if secret is None:
            return "missing"
        return "expired" if hashlib.sha256(secret.encode()).digest() in self._known else "wrong"

    def access_by(self, token: Token) -> Access | None:
        """Return what a token's holder may do; None if the token is not among these."""
        kept, access = self._known.get(bytes.fromhex(token.digest.removeprefix(KIND)), NOBODY)
        return access if kept else None

    def __iter__(self) -> Iterator[Token]:
        """Iterate over the tokens."""
        return (each.token for _, each in self._known.values() if each.token is not None)

    def __bool__(self) -> bool:
        """Return whether callers need a token."""
        return bool(self._known)

    def needed_at(self, socket_name: object) -> bool:
        """Return whether callers on a socket need a token.

        Args:
            socket_name: the address of our socket, as ``getsockname`` returns it: a text or bytes
                for a Unix socket.
        """
        return bool(self._known) and (self._on_unix or not isinstance(socket_name, str | bytes))

    def access(self, secret: str | None, *, now_ms: int) -> Access | None:
        """Return what the holder of a secret may do; None if the secret is wrong or has expired.

        Its duration reveals nothing about the secret, because only the secret's hash is looked up.
        """
        if not self._known:
            return self.anybody
        if secret is None:
            return None
        found = hashlib.sha256(secret.encode()).digest()
        kept, access = self._known.get(found, NOBODY)
        if not hmac.compare_digest(kept, found) or access.token is None:
            return None
        if access.token.expires_ms is not None and now_ms >= access.token.expires_ms:
            return None
        return access
