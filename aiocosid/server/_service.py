"""What the server does, whatever protocol asks: ids, segments, and who may have them.

It keeps no state that the store does not have.  A segment is one addition to a counter of the
store; only ids asked for one by one, or by count, come from a generator of this process.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ..abc import DEFAULT_NAMESPACE, IdGenerator
from ..errors import InvalidArgumentError, NotOpenError
from ..integrations._source import opened
from ..provider import ConfiguredProvider, IdProvider
from ._problems import Problem
from ._tokens import Access, Tokens, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AsyncExitStack

    from ..abc import AnyGenerator, IdSegmentDistributor, Provider, Store
    from ..integrations._source import Source
    from ._tokens import Token

__all__ = ("Limits", "Service")

audit = logging.getLogger("aiocosid.server.audit")

COUNTERS_KEPT: Final = 10_000
"""Counters whose last value is remembered, so that one that went back is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may ask for; more is refused, never cut.

    Attributes:
        ids: ids of one request.
        step: ids of one segment.
        name: characters of a name.
        body: bytes of a request's body.
        connections: open connections of each process; further ones are closed at once.
        header_timeout: seconds that a request's head may take, and an idle connection may stay.
    """

    ids: int = 100_000
    step: int = 10_000_000
    name: int = 256
    body: int = 65_536
    connections: int = 20_000
    header_timeout: float = 60.0


class Service:
    """Ids and segments of one provider and one store, for all protocols.

    Attributes:
        limits: what one request may ask for.
        tokens: who may ask.
        namespace: of counters that are named without one.
        unix_tokens: whether callers on Unix sockets need a token, if others do.
        is_draining: whether it tells its balancer to send no more requests; it still serves.
    """

    __slots__ = (
        "_counters",
        "_created",
        "_creates",
        "_given_store",
        "_provider",
        "_source",
        "_store",
        "is_draining",
        "limits",
        "namespace",
        "tokens",
        "unix_tokens",
    )

    def __init__(
        self,
        source: Source,
        *,
        store: Store | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        tokens: Iterable[Token] = (),
        limits: Limits | None = None,
        create: bool = False,
        unix_tokens: bool = False,
    ) -> None:
        self.limits: Limits = limits or Limits()
        self.tokens: Tokens = Tokens(tokens)
        self.namespace: str = namespace
        self.unix_tokens: bool = unix_tokens
        self.is_draining: bool = False
        self._source = source
        self._given_store = store
        self._creates = create
        self._provider: Provider | None = None
        self._store: Store | None = None
        self._created: IdProvider | None = None
        self._counters: OrderedDict[tuple[str, str], IdSegmentDistributor] = OrderedDict()

    async def open(self, stack: AsyncExitStack) -> None:
        """Open the provider, and leave its end to the stack.

        Raises:
            CosIdError: as the provider's opening.
        """
        provider = await stack.enter_async_context(opened(self._source))
        self.adopt(provider)
        if self._creates and self._created is None:
            created = IdProvider(self.store, namespace=self.namespace)
            self._created = await stack.enter_async_context(created)
            self._created.fail_fast()

    def adopt(self, provider: Provider) -> None:
        """Serve from a provider that is open already."""
        self._provider = provider
        self._store = self._given_store
        if isinstance(provider, IdProvider | ConfiguredProvider):
            self._store = self._store or provider.store
        if isinstance(provider, IdProvider) and self._creates:
            self._created = provider

    @property
    def provider(self) -> Provider:
        """The open provider.

        Raises:
            NotOpenError: it is not open.
        """
        if self._provider is None:
            raise NotOpenError("the server's provider")
        return self._provider

    @property
    def store(self) -> Store:
        """The store of segments and machine ids.

        Raises:
            Problem: there is none.
        """
        if self._store is None:
            detail = "the server has no store: give one in its settings"
            raise Problem(HTTPStatus.NOT_IMPLEMENTED, "no-store", detail)
        return self._store

    # Who may do what.

    def access(self, secret: str | None, now_ms: int) -> Access:
        """Return what a caller may do.

        Raises:
            Problem: a token is needed, and this one is missing, wrong or has expired.
        """
        found = self.tokens.access(secret, now_ms=now_ms)
        if found is None:
            detail = "a token is needed" if secret is None else "the token is wrong, or has expired"
            challenge = {"www-authenticate": 'Bearer realm="aiocosid"'}
            raise Problem(HTTPStatus.UNAUTHORIZED, "no-access", detail, headers=challenge)
        return found

    def trusts(self, socket_name: object) -> bool:
        """Return whether callers may do everything without a token, as on a Unix socket.

        Args:
            socket_name: of our end, as ``getsockname`` returns it: a pair for TCP.
        """
        return not self.tokens or not (self.unix_tokens or isinstance(socket_name, tuple | None))

    def check(self, access: Access, verb: Verb, name: str = "") -> None:
        """Raise unless a caller may do that with a name.

        Raises:
            Problem: it may not, or the name is too long.
        """
        if len(name) > self.limits.name:
            detail = f"a name has at most {self.limits.name} characters"
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid-argument", detail)
        if not access.allows(verb, name):
            detail = f"this token does not allow {str(verb)!r} here"
            raise Problem(HTTPStatus.FORBIDDEN, "not-allowed", detail)

    def note(self, access: Access, what: str) -> None:
        """Write one line of the audit log: who has changed what."""
        audit.info("%s: %s", access.who, what)

    # Ids.

    async def generator(self, name: str) -> AnyGenerator:
        """Return a generator; create it if the server is configured to.

        Raises:
            Problem: there is none of that name.
            CosIdError: it cannot be created.
        """
        try:
            return self.provider[name]
        except KeyError:
            pass
        if self._created is None:
            # Not the name itself: nobody has checked it.
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-name", "no generator has that name")
        return await self._created.segment_chain(name)

    async def next_ids(self, name: str, count: int) -> list[int] | list[str]:
        """Return exactly ``count`` ids of a generator.

        If the caller goes away, they are a gap, and nobody else gets them.

        Raises:
            Problem: there is none of that name, or the count is outside its range.
            CosIdError: there are no ids now.
        """
        generator = await self.generator(name)
        if count == 1 and isinstance(generator, IdGenerator):
            return [await generator.next_id()]
        self._check_size("count", count, self.limits.ids)
        return await generator.next_ids(count)

    # Segments.

    async def next_max_id(self, name: str, *, namespace: str, step: int, offset: int = 0) -> int:
        """Add to a counter of the store, and return its value: ``(value - step, value]`` is theirs.

        Args:
            name: the counter's name.
            namespace: its namespace.
            step: how many ids, from 1 to the limit.
            offset: where a new counter begins.

        Raises:
            Problem: the step is outside its range, or there is no store.
            CosIdError: the store refuses or cannot be reached; or an argument is refused.
        """
        self._check_size("step", step, self.limits.step)
        return await self.counter(name, namespace=namespace, offset=offset).next_max_id(step)

    def counter(self, name: str, *, namespace: str, offset: int = 0) -> IdSegmentDistributor:
        """Return the distributor of a counter; nothing is sent.

        Raises:
            Problem: there is no store.
            InvalidArgumentError: the name is refused.
        """
        key = namespace, name
        found = self._counters.get(key)
        if found is None or (offset and offset != found.offset):
            found = self.store.segment_distributor(namespace=namespace, name=name, offset=offset)
            self._counters[key] = found
            if len(self._counters) > COUNTERS_KEPT:
                self._counters.popitem(last=False)
        else:
            self._counters.move_to_end(key)
        return found

    def _check_size(self, what: str, size: int, at_most: int) -> None:
        if not 1 <= size <= at_most:
            raise InvalidArgumentError(what, size, expected=f"from 1 to {at_most}")
