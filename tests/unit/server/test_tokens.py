"""Tokens: kept as hashes, checked per verb and name, with an end."""

from __future__ import annotations

import pytest

from aiocosid.errors import InvalidArgumentError
from aiocosid.server import Token, TokenScope, digest_of, new_token
from aiocosid.server._tokens import Access, Tokens

SECRET = f"aiocosid_{'s' * 43}"


def token(*, names: tuple[str, ...] = ("*",), expires_ms: int | None = None) -> Token:
    return Token(
        name="shop",
        digest=digest_of(SECRET),
        scopes=(TokenScope.IDS, TokenScope.READ),
        names=names,
        expires_ms=expires_ms,
    )


def test_without_tokens_everybody_may_do_everything() -> None:
    access = Tokens().access(None, now_ms=0)
    assert access is not None
    assert access.allows(TokenScope.ADMIN, "order")
    assert access.who == "anybody"


@pytest.mark.parametrize("secret", [None, "", "aiocosid_", SECRET + "x", SECRET.upper()])
def test_a_wrong_token(secret: str | None) -> None:
    assert Tokens([token()]).access(secret, now_ms=0) is None


def test_what_a_token_allows() -> None:
    access = Tokens([token()]).access(SECRET, now_ms=0)
    assert access is not None
    assert access == Access(token())
    assert access.allows(TokenScope.IDS, "order")
    assert not access.allows(TokenScope.SEGMENTS, "order")
    assert access.who == "shop"


@pytest.mark.parametrize(
    ("pattern", "name", "is_allowed"),
    [
        ("order", "order", True),
        ("order", "orders", False),
        ("shop.*", "shop.order", True),
        ("shop.*", "shops", False),
        ("shop.*", "shopXorder", False),  # a dot is a dot
        ("*order", "shop.order", True),
        ("*", "a\nb", True),
        ("order", "", False),  # all names are meant
        ("*", "", True),
    ],
)
def test_names(pattern: str, name: str, is_allowed: bool) -> None:
    access = Tokens([token(names=("other", pattern))]).access(SECRET, now_ms=0)
    assert access is not None
    assert access.allows(TokenScope.IDS, name) is is_allowed


def test_the_end_of_a_token() -> None:
    tokens = Tokens([token(expires_ms=1000)])
    assert tokens.access(SECRET, now_ms=999) is not None
    assert tokens.access(SECRET, now_ms=1000) is None


def test_a_token_is_renewed_while_the_old_one_is_valid() -> None:
    newer = Token(name="shop", digest=digest_of("aiocosid_new"), scopes=(TokenScope.IDS,))
    tokens = Tokens([token(), newer])
    assert tokens.access(SECRET, now_ms=0) == Access(token())
    assert tokens.access("aiocosid_new", now_ms=0) == Access(newer)


@pytest.mark.parametrize("digest", ["", SECRET, "sha256:", "sha256:" + "g" * 64])
def test_a_digest_that_is_none_is_not_shown(digest: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"digest must be 'sha256:' .* prints it$"):
        Token(name="shop", digest=digest, scopes=())


def test_new_tokens_differ() -> None:
    found = {new_token() for _ in range(100)}
    assert len(found) == 100
    assert all(each.startswith("aiocosid_") and len(each) == 52 for each in found)


def test_who_needs_one() -> None:
    """Everybody; on a Unix socket nobody, if that is said; what is unknown counts as TCP."""
    token = Token(name="shop", digest=digest_of("s"), scopes=(TokenScope.IDS,))
    tcp, unix, abstract = ("127.0.0.1", 1), "/run/ids.sock", b"\0ids"
    for name in (tcp, unix, abstract, None):
        assert not Tokens().needed_at(name)
        assert Tokens([token]).needed_at(name)
        assert Tokens([token], unix=False).needed_at(name) is (name in {tcp, None})


def test_what_is_not_offered_no_token_allows() -> None:
    admin = Token(name="shop", digest=digest_of("s"), scopes=(TokenScope.IDS, TokenScope.ADMIN))
    for found in (Tokens(offers=[TokenScope.IDS]), Tokens([admin], offers=[TokenScope.IDS])):
        access = found.access("s", now_ms=0)
        assert access is not None
        assert access.allows(TokenScope.IDS, "order")
        assert not access.allows(TokenScope.ADMIN)
        assert access.refusal(TokenScope.ADMIN, "") == "this server does not offer 'admin'"
