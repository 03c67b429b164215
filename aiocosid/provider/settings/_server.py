"""The settings of the id service: the table ``[server]``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from ...errors import InvalidArgumentError
from ._addresses import address_of
from ._generators import Name, Patience, Timeout  # noqa: TC001 - pydantic reads annotations
from ._values import STRICT, EnvironmentText, Flag, Whole, from_text

__all__ = (
    "DialectSettings",
    "LeafDialectSettings",
    "LimitSettings",
    "RespSettings",
    "ServerSettings",
    "TinyidDialectSettings",
    "TokenSettings",
)


def _listed(value: object) -> object:
    """Split the value of an environment variable at commas."""
    if isinstance(value, EnvironmentText):
        return [each.strip() for each in value.split(",")]
    return value


def _address(text: str) -> str:
    try:
        address_of(text)
    except InvalidArgumentError as error:
        raise PydanticCustomError("address", "{rule}", {"rule": error.rule}) from None
    return text


def _with_zone(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        message = "must be a time with its offset, such as 2027-01-01T00:00:00Z"
        raise PydanticCustomError("zone", message)
    return moment


Address: TypeAlias = Annotated[str, AfterValidator(_address)]
Count: TypeAlias = Annotated[Whole, Field(ge=1, le=2**40)]
Expiry: TypeAlias = Annotated[
    datetime, from_text(datetime.fromisoformat), AfterValidator(_with_zone)
]
Prefix: TypeAlias = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")]
Digest: TypeAlias = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", repr=False)]
Secret: TypeAlias = Annotated[str, Field(min_length=32, max_length=1024)]
VerbName: TypeAlias = Literal["ids", "segments", "machines", "read", "admin"]


class TokenSettings(BaseModel):
    """What the holder of one bearer token may do.

    Attributes:
        name: the holder's name in the audit log.
        digest: the hash of the token, as ``aiocosid token new`` prints it; never the token itself.
        scopes: what the token allows: "ids" to take ids, "segments" to take segments, "machines" to
            take machine ids, "read" to see generators and the dashboard, "admin" to drain and to
            raise floors.
        names: patterns of the names for which the token is valid, with ``*`` for any characters.
        expires: when it expires, with the offset from UTC.
        ids_per_second: how many ids of each name the holder may take per second, from each process;
            by default no limit.
        ids_per_request: maximum ids in one request of the holder; by default the server's limits.
    """

    model_config = STRICT

    name: Name
    digest: Digest
    scopes: Annotated[list[VerbName], Field(min_length=1)] = ["ids"]
    names: Annotated[list[Name], Field(min_length=1)] = ["*"]
    expires: Expiry | None = None
    ids_per_second: Count | None = None
    ids_per_request: Count | None = None


class LimitSettings(BaseModel):
    """Limits of what a client may request; the server refuses a larger request.

    Attributes:
        ids: maximum ids in one request.
        step: maximum ids in one segment; a chain at full speed requests 16.8 million.
        name: maximum characters of a name.
        body: maximum bytes of a request's body.
        connections: maximum open connections of each process; further ones are closed at once.
        header_timeout: seconds that a TLS handshake or a request may take, that an answer may stay
            unread, and that a connection may stay idle; idle RESP connections stay open once they
            have shown any token that they need.
        safe_guard: minimum seconds without a renewal before a client can get another's machine id,
            whatever it asks for; the namespace's longest safe guard applies too.
    """

    model_config = STRICT

    ids: Count = 100_000
    step: Count = 1 << 26
    name: Count = 256
    body: Count = 65_536
    connections: Count = 20_000
    header_timeout: Timeout = 60.0
    safe_guard: Annotated[Patience, Field(allow_inf_nan=False)] = 300.0


class DialectSettings(BaseModel):
    """Another system's protocol; the server speaks it if its table exists, even an empty one.

    Attributes:
        public: whether its clients need no token.
        prefix: the beginning of its paths, for example "/leaf".
    """

    model_config = STRICT

    public: Flag = False
    prefix: Prefix = ""


class LeafDialectSettings(DialectSettings):
    """Leaf's protocol.

    Attributes:
        segment: whether ``/api/segment/get/{key}`` issues ids.
        snowflake: the generator of ``/api/snowflake/get/{key}``.
    """

    segment: Flag = True
    snowflake: Name = "snowflake"


class TinyidDialectSettings(DialectSettings):
    """tinyid's protocol.

    Attributes:
        cap_batches: whether a request for more than 100,000 ids gets 100,000, as from tinyid;
            otherwise it is refused.
    """

    cap_batches: Flag = False


class RespSettings(BaseModel):
    """The Redis protocol, on all addresses; clients show their token with ``AUTH``.

    Attributes:
        namespace: the namespace of counters whose key is not CosId's.
    """

    model_config = STRICT

    namespace: Name = "redis"


class ServerSettings(BaseModel):
    """The id service, which ``aiocosid serve`` runs.

    Attributes:
        listen: addresses: "host:port", "[::1]:port", "unix:/path", or "fd://" for the sockets that
            systemd passes.
        unix_mode: permissions of Unix sockets.
        unix_tokens: whether tokens are needed on Unix sockets too; false only if no proxy is in
            front of them and their permissions are sufficient.
        hosts: the server's host names, with ``*`` for any characters; a request without a token may
            name these, localhost or an address as its host.
        receipt_key: a secret of at least 32 characters that all servers of the store share; with
            it, clients that show a token keep their machine ids after the store has lost them.
        workers: the number of processes that share the addresses.
        create: whether a request for an unknown name creates a segment chain; ``create`` at the top
            of the settings is for tables and files.
        insecure: allows an address that other machines can reach without any token.
        tls_certificate: a PEM file with the certificates of the server; Unix sockets have no TLS.
        tls_key: a PEM file with the certificate's key; by default it is in the same file.
        drain: seconds to keep serving after SIGTERM, while /health/ready answers 503.
        graceful_timeout: seconds that requests may take to finish after that.
        limits: the limits of what a client may request.
        tokens: a table for each token; without tokens, every client may do everything.
        cosid: speaks the protocol of CosId's proxy.
        leaf: speaks the protocol of Leaf's server.
        tinyid: speaks the protocol of tinyid's server.
        resp: speaks the Redis protocol.
    """

    model_config = STRICT

    listen: Annotated[list[Address], Field(min_length=1), BeforeValidator(_listed)] = [
        "127.0.0.1:8688"
    ]
    unix_mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$")] = "660"
    unix_tokens: Flag = True
    hosts: Annotated[list[Name], BeforeValidator(_listed)] = []
    receipt_key: Annotated[Secret | None, Field(repr=False)] = None
    workers: Annotated[Whole, Field(ge=1, le=1024)] = 1
    create: Flag = False
    insecure: Flag = False
    tls_certificate: Name | None = None
    tls_key: Name | None = None
    drain: Annotated[Patience, Field(allow_inf_nan=False)] = 0.0
    graceful_timeout: Timeout = 30.0
    limits: LimitSettings = LimitSettings()
    tokens: list[TokenSettings] = []
    cosid: DialectSettings | None = None
    leaf: LeafDialectSettings | None = None
    tinyid: TinyidDialectSettings | None = None
    resp: RespSettings | None = None

    @model_validator(mode="after")
    def _check(self) -> ServerSettings:
        if self.tls_key is not None and self.tls_certificate is None:
            raise PydanticCustomError("tls", "tls_key requires tls_certificate")
        return self
