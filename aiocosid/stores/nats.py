"""Counters and machine ids on NATS JetStream.  Requires the ``nats`` extra.

CosId has no NATS store: the subjects are aiocosid's own.  A prefix has two streams, one with a
message for each counter, and one with a message for each cell of machine ids.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import ssl
from base64 import b64decode
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, TypeVar
from urllib.parse import unquote

import anyio

from .._life.clock import SYSTEM_CLOCK
from ..abc import MAX_ID, Counter, ServerInfo
from ..abc.checks import check_boolean, check_integer
from ..errors import (
    CounterMissingError,
    CounterNotCreatedError,
    IdOverflowError,
    InvalidArgumentError,
    MissingExtraError,
    SchemaMissingError,
    StoreAuthenticationError,
    StoreError,
    StoreUnavailableError,
    UnsupportedByStoreError,
    WrongLoopError,
)
from ._connection import (
    CLOSE_TIMEOUT,
    BorrowedConnection,
    Connection,
    OwnedConnection,
    fail_if_forked,
    placed,
    silence,
    untrusted,
)
from ._durability import NATS as RULES
from ._durability import findings
from ._own_cells import ShardedPlaces, is_enough, leave_out_compared, quoted
from ._url import NATS, client_context, read_url
from .backend import Backend
from .base import BackendStore

try:
    from nats.aio.client import Client
    from nats.errors import ConnectionClosedError, NoServersError, SecureConnWantedError
    from nats.errors import Error as NatsError
    from nats.js.errors import APIError, ServiceUnavailableError
except ModuleNotFoundError as _exc:
    raise MissingExtraError("nats-py", extra="nats") from _exc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ..machine.cells import Changes, ReadRequest, Snapshot
    from ._url import StoreUrl

__all__ = ("NatsStore",)

OLDEST: Final = (2, 12, 2)  # 2.12.0 refuses every batch; 2.12.1 hangs if several run at once
CREATE_TIMEOUT: Final = 20.0  # seconds, because a cluster first elects leaders
PAUSE: Final = 0.02  # maximum seconds before a retry
MOST_PENDING: Final = 1 << 20  # bytes; a server that leaves this much unread does not answer
MOST_SEATS: Final = 800  # slots in a batch, which holds 1,000 messages

# This is added when a counter is created, so that an increment on a missing counter is recognised.
BIAS: Final = 10**30
# A new stream of cells begins at the time in microseconds, so it never reuses a sequence.  A lower
# first sequence shows that `aiocosid init` did not create the stream.
LOWEST: Final = 10**15
PLACE: Final = {"Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"}
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"

# Codes of the server's errors.
NO_MESSAGE, IS_THERE, NO_STREAM, CONFLICT = 10037, 10058, 10059, 10071
# Nothing was done, because of conflicts or too many writes.
BUSY: Final = {10158, 10164, 10176, 10211}
STARTING: Final = {10008, 10009, NO_STREAM}  # errors while another process creates the stream
_NO_JETSTREAM: Final = 10039  # JetStream is off for the user's account
REFUSALS: Final = ("authorization", "authentication", "permissions")

_NOT_SYNCED: Final = (
    "a power cut or a crash of one server's operating system may take grants back, at any number "
    "of replicas, unless all servers have 'sync_interval: always', which no client can see; if "
    "they have, say so by sync_always=True, or ?sync_always=true in a URL"
)

T = TypeVar("T")
_Fields: TypeAlias = dict[str, str]  # the headers of a message


class _Last(NamedTuple):
    """The last message of a subject: its sequence (0 if there is none), time and body."""

    sequence: int = 0
    time_ms: int = 0
    data: bytes = b""


class _OwnClient(Client):
    """The driver's client, created from a URL.

    Attributes:
        reason: the last error, which the driver reports only to this callback.
    """

    reason: Exception | None = None

    async def record(self, exc: Exception) -> None:
        self.reason = exc

    async def give_up(self) -> None:
        """Fail the calls that wait for a reply."""
        futures: dict[str, asyncio.Future[Any]] = self._resp_map  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        for future in tuple(futures.values()):
            if not future.done():
                future.set_exception(ConnectionClosedError())
                future.exception()  # a call that is not waiting yet gets the error later

    def _connect_command(self) -> bytes:
        if "tls" in self.options and not self._server_info.get("tls_required"):
            raise SecureConnWantedError  # the driver would send the login unencrypted
        return super()._connect_command()


async def _connect(url: StoreUrl, tls: ssl.SSLContext | None) -> Client:
    """Connect to one of the servers of a URL."""
    client = _OwnClient()
    user, password = url.login or (None, None)
    signed: dict[str, Any] = url.options["creds"] or url.options["nkey"] or {}
    try:
        await client.connect(
            [f"nats://{host}" for host in url.hosts],
            user=user,
            password=password,
            **signed,
            tls=tls,
            error_cb=client.record,
            closed_cb=client.give_up,
            # After a reconnect the driver would send data that was meant for this connection.
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=url.options["timeout"] / (len(url.hosts) + 1),
            ping_interval=1,
        )
    except BaseException as exc:
        reason = client.reason
        await _close(client)  # otherwise the client's socket stays open
        if isinstance(exc, NoServersError) and reason is not None:
            raise reason from exc
        raise
    return client


def _told(client: Client) -> dict[str, Any]:
    """Return what the server has said about itself."""
    return client._server_info


async def _close(client: Client) -> None:
    with anyio.move_on_after(CLOSE_TIMEOUT, shield=True), suppress(OSError):
        await client.close()


def _as_store_error(label: str, exc: Exception, *, is_off: bool = False) -> StoreError:
    """Return aiocosid's error for one of the driver or the server."""
    text = str(exc) or "no answer in time"
    if getattr(exc, "err_code", None) == _NO_JETSTREAM or is_off:
        remedy = "switch JetStream on: nats-server -js, and for the account if it has one"
        return UnsupportedByStoreError(label, f"JetStream is off ({text})", remedy=remedy)
    if isinstance(exc, ssl.SSLCertVerificationError):
        return untrusted(label, text)
    if isinstance(exc, SecureConnWantedError):
        return StoreError(label, text, remedy="switch TLS on in the server, or use nats://")
    if any(word in text.lower() for word in REFUSALS):
        return StoreAuthenticationError(label, text)
    is_final = isinstance(exc, APIError) and not isinstance(exc, ServiceUnavailableError)
    return (StoreError if is_final else StoreUnavailableError)(label, text)


class NatsBackend(Backend):
    """Two streams.  A commit is one batch of messages that compares the last sequences.

    A stream's leader applies an increment or a batch as a whole or not at all, and answers once a
    majority of the replicas has it.
    """

    __slots__ = ("_cells", "_counters", "_far", "_options", "_prefix", "order_risk")

    link: Connection[Client]

    # It fits a protocol line of 4,096 bytes, at three characters for each byte of UTF-8.
    name_width: int | None = 256

    def __init__(
        self, label: str, connection: Connection[Client], options: Mapping[str, Any]
    ) -> None:
        super().__init__(label, connection)
        self._options = options
        self._prefix: str = options["prefix"]
        self._counters, self._cells = f"{self._prefix}_counters", f"{self._prefix}_cells"
        self._far: set[str] = set()  # counters that may be close to their limit
        self.order_risk: str = "" if options["sync_always"] else _NOT_SYNCED

    # The calls have their own deadline, because the driver's would swallow a cancellation that
    # arrives together with the reply.

    async def _call(self, work: Callable[[Client], Awaitable[T]], *, creates: bool = False) -> T:
        """Run a call; run it again if the server answers that nothing was done for now."""
        seconds: float = CREATE_TIMEOUT if creates else self._options["timeout"]
        client: Client | None = None
        earlier: Exception | None = None
        try:
            with fail_if_forked(), anyio.fail_after(seconds):
                client = await self.link.ready()
                self._ensure_usable(client)
                earlier = client.last_error
                while True:
                    try:
                        return await work(client)
                    except NatsError as exc:
                        code = getattr(exc, "err_code", None)
                        if code not in (STARTING if creates else BUSY):
                            for each in (self._counters, self._cells) * (code in {None, NO_STREAM}):
                                await self._info(client, each)  # the stream may have been removed
                            raise
                    await SYSTEM_CLOCK.sleep(random.uniform(0, PAUSE))  # noqa: S311 - no secret
        except (OSError, NatsError, ValueError) as exc:
            # A request on a denied subject gets no reply; instead, the driver receives an error.
            heard = client and isinstance(exc, TimeoutError) and client.last_error
            is_denied = heard is not earlier and "permissions" in str(heard).lower()
            # Otherwise JetStream may answer again: this server has it, or others of its cluster.
            has_none = client and {"jetstream", "cluster"}.isdisjoint(_told(client))
            is_off = bool(has_none) and type(exc).__name__ == "NoRespondersError"
            heard = heard if heard and is_denied else exc
            raise placed(_as_store_error(self.label, heard, is_off=is_off), exc, "") from exc

    def _ensure_usable(self, client: Client) -> None:
        """Refuse a server that is too old, and a connection that does not send.

        The driver buffers unsent data, and swallows cancellations if there is too much of it.
        """
        reading: asyncio.Task[Any] | None = client._reading_task  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not (reading and client.is_connected) or client.pending_data_size > MOST_PENDING:
            raise StoreUnavailableError(self.label, "the connection is interrupted")
        if reading.get_loop() is not asyncio.get_running_loop():
            raise WrongLoopError("the NATS client")
        found = client.connected_server_version
        if (found.major, found.minor, found.patch) < OLDEST:
            remedy = "update it: counters and batches need {}.{}.{} or later".format(*OLDEST)
            raise UnsupportedByStoreError(self.label, f"{found} is too old", remedy=remedy)

    async def _info(self, client: Client, stream: str) -> Any:  # noqa: ANN401 - JSON
        """Ask the leader about a stream.

        Raises:
            SchemaMissingError: the stream does not exist.
        """
        if (info := await _ask(client, f"$JS.API.STREAM.INFO.{stream}", but=NO_STREAM)) is None:
            raise SchemaMissingError(self.label, table=stream, kind="stream")
        return info

    async def ask_server(self) -> ServerInfo:
        return await self._call(self._facts)

    async def _facts(self, client: Client) -> ServerInfo:
        # The server does not show whether it syncs each message.
        told = [("sync_interval", "always")] if self._options["sync_always"] else []
        for stream in (self._counters, self._cells):
            info = await _ask(client, f"$JS.API.STREAM.INFO.{stream}", but=NO_STREAM)
            if info is not None:
                told.append((f"storage of stream {stream}", info["config"]["storage"]))
        return findings(RULES, told).facts(f"NATS {client.connected_server_version}")

    async def create_schema(self, *, disposable: bool = False, after_loss: bool = False) -> bool:  # noqa: ARG002 - it cannot tell
        await self._call(self._create, creates=True)
        return disposable

    async def _create(self, client: Client) -> None:
        common = {"storage": "file", "max_msgs_per_subject": 1, "allow_direct": True}
        by_default = 3 if "cluster" in _told(client) else 1
        common["num_replicas"] = self._options["replicas"] or by_default
        counters = {"subjects": [f"{self._prefix}.counter.*"], "allow_msg_counter": True}
        cells = {
            "subjects": [f"{self._prefix}.cell.>", f"{self._prefix}.compared"],
            "allow_atomic": True,
            "allow_msg_ttl": True,
            "first_seq": SYSTEM_CLOCK.now_ms() * 1000 + random.randrange(1000),  # noqa: S311
        }
        for name, options in ((self._counters, counters), (self._cells, cells)):
            body = json.dumps({"name": name, **common, **options}).encode()
            await _ask(client, f"$JS.API.STREAM.CREATE.{name}", body, but=IS_THERE)

    # Counters.

    async def add(self, name: str, by: int, *, first: int | None) -> int:
        async def advance(client: Client) -> int:
            if first is not None or name in self._far:
                start = None if first is None else first - by
                found = await self._settle(client, name, 0, start, is_marked=True)
                if found % BIAS + by > MAX_ID:
                    raise IdOverflowError(name, limit=MAX_ID)
            headers = {"Nats-Incr": f"+{by}"}
            return int((await _ask(client, self._subject(name), headers=headers))["val"])

        value = await self._call(advance)
        if value < BIAS:
            raise CounterMissingError(self.label, counter=name)
        max_id = value % BIAS
        if max_id > MAX_ID // 2:
            self._far.add(name)
        if max_id > MAX_ID:
            raise IdOverflowError(name, limit=MAX_ID)
        return max_id

    async def raise_to(self, name: str, above: int, *, create: bool) -> Counter | None:
        start = above if create else None
        value = await self._call(lambda client: self._settle(client, name, above, start))
        return _counter(name, value)

    async def _settle(
        self,
        client: Client,
        name: str,
        at_least: int,
        first: int | None,
        *,
        is_marked: bool = False,
    ) -> int:
        """Raise a lower counter, or create a missing one, and return its value.

        If several processes do this at the same value, only one succeeds: the server drops the
        others' messages as duplicates.

        Args:
            client: the client.
            name: the counter's name.
            at_least: the value to which an existing counter is raised.
            first: the value of a missing counter that is created; None creates no counter.
            is_marked: whether the counter is created only if the store has a marker.  The marker is
                in another stream, which is read first; if the store is emptied within the one round
                trip in between, the counter is still created.
        """
        subject, salt = self._subject(name), ""
        while True:
            last = await _last(client, self._counters, subject)
            found = _value(last)
            # The addition is never negative, even after a conflict, because lower ids belong to
            # others.
            by = 0 if first is None else BIAS + max(first - found, 0)
            if found >= BIAS:
                by = max(at_least - found % BIAS, 0)
            if not by:
                return found
            if is_marked and found < BIAS:
                await self._ensure_marked(client, name)
            message = f"raise {at_least} {subject} {last.sequence} {salt}"
            headers = {"Nats-Incr": f"+{by}", "Nats-Msg-Id": message}
            reply = await _ask(client, subject, headers=headers)
            if not reply.get("duplicate"):
                return int(reply["val"])
            salt = token_hex(8)  # after a purge, another message may have this sequence

    async def _ensure_marked(self, client: Client, name: str) -> None:
        """Refuse to create a counter if existing counters may be lost.

        Raises:
            CounterNotCreatedError: there is no marker, or the counters' stream is newer than the
                marker.
        """
        marker = await _last(client, self._cells, f"{self._prefix}.cell.store.marker")
        created_ms = _unix_ms((await self._info(client, self._counters))["created"])
        if not marker.sequence or marker.time_ms < created_ms:
            is_emptied = marker.sequence > 0
            raise CounterNotCreatedError(self.label, counter=name, is_emptied=is_emptied)

    async def peek(self, name: str) -> int | None:
        subject = self._subject(name)
        last = await self._call(lambda client: _last(client, self._counters, subject))
        counter = _counter(name, _value(last))
        return None if counter is None else counter.last_max_id

    async def counters(self, prefix: str) -> Sequence[Counter]:
        start = self._subject("")
        found = await self._call(lambda client: _scan(client, self._counters, f"{start}*"))
        read = (_counter(unquote(key.removeprefix(start)), _value(found[key])) for key in found)
        return [each for each in read if each and each.namespaced_name.startswith(prefix)]

    def _subject(self, name: str) -> str:
        return f"{self._prefix}.counter.{quoted(name)}"

    # Cells.

    async def namespaces(self) -> Sequence[str]:
        start = f"{self._prefix}.cell."
        found = await self._call(lambda client: _scan(client, self._cells, f"{start}ns.>"))
        return [*{ShardedPlaces.namespace_of(key, start) for key in found}]

    async def read(self, namespace: str, need: ReadRequest) -> Snapshot:
        return await self._call(lambda client: self._read(client, namespace, need))

    async def _read(self, client: Client, namespace: str, need: ReadRequest) -> Snapshot:
        places = ShardedPlaces(self.label, f"{self._prefix}.cell.", namespace)
        info = await self._info(client, self._cells)
        if info["config"].get("first_seq", 0) < LOWEST:
            reason = f"stream {self._cells!r} was not created by 'aiocosid init --store URL'"
            raise StoreError(self.label, reason, remedy="delete it, and run that")
        found = {key: await _last(client, self._cells, key) for key in places.needed(need)}
        if need.is_complete:  # read counts first, so they never exceed the ids
            for below in (f"{places.count}.*", f"{places.root}>"):
                found |= await _scan(client, self._cells, below)
        counted = -1
        has_count = any(key.startswith(f"{places.count}.") for key in found)
        # The namespaces are read after their count, so the count never exceeds them.
        if need.namespaces and not (need.sample and has_count):
            counts = await _scan(client, self._cells, f"{places.counts}>")
            counted = len({key.removeprefix(places.counts).split(".")[0] for key in counts})
        texts = {key: each.data for key, each in found.items()}
        snapshot = places.snapshot(
            info["created"],
            texts | {places.count: places.total(texts)},
            {key: each.time_ms for key, each in found.items()},
            need,
            now_ms=_unix_ms(info["ts"]),
            counted=counted,
            raw=found | {"": _Last(info["state"]["last_seq"])},
        )
        if is_enough(snapshot, need):
            return snapshot
        return await self._read(client, namespace, replace(need, is_complete=True))

    async def commit(self, snapshot: Snapshot, changes: Changes) -> bool:
        places = ShardedPlaces(self.label, f"{self._prefix}.cell.", snapshot.namespace)
        before = defaultdict(_Last, snapshot.raw)
        is_great = len(changes.slots) > MOST_SEATS
        if is_great:  # compare the whole stream instead of single cells
            leave_out_compared(snapshot, changes)
        known = {key: each.data for key, each in before.items()}
        texts = places.spread_texts(snapshot, changes, known)
        compared = {places.marker, places.space} - texts.keys()

        def expect(key: str, body: bytes = b"-") -> _Fields:
            expected = {EXPECTED: str(before[key].sequence), f"{EXPECTED}-Subject": key}
            return expected if body else expected | {"Nats-TTL": "1h"}

        batch = [(f"{self._prefix}.compared", b"", expect(key)) for key in compared]
        batch += [(key, text, expect(key, text)) for key, text in texts.items()]
        if is_great:
            batch[0][2]["Nats-Expected-Last-Sequence"] = str(before[""].sequence)
        last = await self._call(lambda client: self._publish(client, batch))
        if last is None:
            return False
        written = {key: _Last(last - len(texts) + n) for n, key in enumerate(texts, 1)}
        snapshot.apply(changes)
        snapshot.raw = {key: before[key] for key in compared} | written
        return True

    async def _publish(
        self, client: Client, messages: Sequence[tuple[str, bytes, _Fields]]
    ) -> int | None:
        """Publish a batch, as a whole or not at all.

        Args:
            client: the client.
            messages: subject, body and headers of each message; at most 1,000.

        Returns:
            The sequence of the last message; the others precede it.  None if a message's
            expectation was not met.
        """
        batch, size = token_hex(16), len(messages)
        for number, (subject, data, headers) in enumerate(messages, 1):
            headers.update({"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)})
            if number < size:
                await client.publish(subject, data, headers=headers)
        subject, data, headers = messages[-1]
        end = headers | {"Nats-Batch-Commit": "1"}
        if (reply := await _ask(client, subject, data, end, but=CONFLICT)) is None:
            return None
        if (reply.get("batch"), reply.get("count")) != (batch, size):
            reason = "the stream's leader does not support batches"
            raise UnsupportedByStoreError(self.label, reason, remedy="update that server")
        return int(reply["seq"])


async def _ask(
    client: Client, subject: str, body: bytes = b"", headers: _Fields | None = None, *, but: int = 0
) -> Any:  # noqa: ANN401 - JSON
    """Send a request to JetStream, or publish to a stream, and return the reply.

    Args:
        client: the client.
        subject: the subject of the request or message.
        body: the message's body.
        headers: the message's headers.
        but: an error code for which None is returned.
    """
    for_ever: Any = None  # the driver's annotation does not allow None
    message = await client.request(subject, body, timeout=for_ever, headers=headers)
    reply = json.loads(message.data)
    if (error := reply.get("error")) and error.get("err_code") != but:
        raise APIError.from_error(error)
    return None if error else reply


async def _last(client: Client, stream: str, subject: str) -> _Last:
    """Ask the leader for the last message of a subject."""
    body = json.dumps({"last_by_subj": subject}).encode()
    reply = await _ask(client, f"$JS.API.STREAM.MSG.GET.{stream}", body, but=NO_MESSAGE)
    if reply is None:
        return _Last()
    found = reply["message"]
    return _Last(found["seq"], _unix_ms(found["time"]), b64decode(found.get("data", "")))


async def _scan(client: Client, stream: str, below: str) -> dict[str, _Last]:
    """Read the last messages below a subject, from a replica that is up to date with the leader."""
    reached = (await _last(client, stream, below)).sequence
    found: dict[str, _Last] = {}
    replies: asyncio.Queue[Any] = asyncio.Queue()
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=replies.put)  # pyright: ignore[reportUnknownMemberType]
    body = json.dumps({"seq": 1, "next_by_subj": below, "batch": 1 << 20}).encode()
    try:
        while max((each.sequence for each in found.values()), default=0) < reached:
            await client.publish(f"$JS.API.DIRECT.GET.{stream}", body, inbox)
            while (head := (reply := await replies.get()).headers).keys() >= PLACE:
                position = int(head["Nats-Sequence"]), _unix_ms(head["Nats-Time-Stamp"])
                found[head["Nats-Subject"]] = _Last(*position, reply.data)
            if head.get("Status") not in {"204", "404"}:  # otherwise all messages have arrived
                raise NatsError(f"an incomplete reply: {head}")
    finally:
        await subscription.unsubscribe()
    return found


def _unix_ms(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _value(last: _Last) -> int:
    return int(json.loads(last.data)["val"]) if last.data else 0


def _counter(name: str, value: int) -> Counter | None:
    """Return the counter of a value; None if the counter was not created."""
    max_id = min(value % BIAS, MAX_ID)
    return Counter(namespaced_name=name, last_max_id=max_id) if value >= BIAS else None


class NatsStore(BackendStore[NatsBackend]):
    """Counters and machine ids in two JetStream streams, on one server or a cluster.

    CosId has no NATS store: streams and subjects are aiocosid's own.  Runs on asyncio, with NATS
    2.12.2 or later.  `create_schema` creates the streams; no message in them expires.

    One increment reserves a range.  If the reply is lost, the range is lost too.
    """

    __slots__ = ()

    def __init__(
        self,
        client: Client,
        *,
        prefix: str = NATS.default_path[1:],
        replicas: int | None = None,
        sync_always: bool = False,
    ) -> None:
        """Use your own client, which the store never closes; nothing is sent yet.

        Args:
            client: a ``nats.aio.client.Client`` that you have connected.
            prefix: the prefix of streams and subjects: 1 to 64 letters, digits, ``-`` and ``_``.
            replicas: the replicas of the streams that are created, 1 to 5; by default 3 in a
                cluster, else 1.
            sync_always: whether all servers have ``sync_interval: always``.  The driver cannot see
                this setting, and a ``strict`` generator needs it.

        Raises:
            InvalidArgumentError: an argument is outside its range, or ``client`` is not a
                ``nats.aio.client.Client``.
        """
        if not isinstance(client, Client):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            raise InvalidArgumentError("client", type(client), "must be a nats.aio.client.Client")
        if not re.fullmatch(NATS.path, f"/{prefix}"):
            rule = "must be 1 to 64 letters, digits, '-' and '_'"
            raise InvalidArgumentError("prefix", prefix, rule)
        if replicas is not None:
            check_integer("replicas", replicas, at_least=1, at_most=5)
        check_boolean("sync_always", sync_always)
        timeout: float = NATS.options["timeout"].default
        options = {
            "prefix": prefix,
            "replicas": replicas,
            "timeout": timeout,
            "sync_always": sync_always,
        }
        self._backend = NatsBackend("nats", BorrowedConnection("the NATS client", client), options)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Use its own connection, opened on first use and again after `aclose`.

        Args:
            url: ``nats://[user:password@]host[:port][,host[:port]...][/prefix]``, with some servers
                of the cluster; any of them is used.  ``nats+tls://`` for TLS.  The prefix is
                ``aiocosid`` by default.  Options after a ``?``: ``timeout``, seconds for a call,
                1.5 by default; ``replicas`` of the streams that are created, by default 3 in a
                cluster, else 1; ``sync_always=true`` if all servers have ``sync_interval: always``,
                which a ``strict`` generator needs; with TLS ``ssl_ca_certs``, ``ssl_certfile``,
                ``ssl_keyfile``.  Instead of a user and a password, give ``creds``, a file with the
                user's JWT and nkey, or ``nkey``, a file with the nkey's seed.  These files are read
                immediately.

        Raises:
            InvalidArgumentError: the URL is malformed, or a file is missing or damaged.
            MissingExtraError: an nkey file is given, but the package ``nkeys`` is missing.
        """
        found = read_url(url, NATS)
        logins = found.login, found.options["creds"], found.options["nkey"]
        if sum(map(bool, logins)) > 1:
            rule = "must have only one of user:password, creds and nkey"
            raise NATS.refused(found.scheme, rule)
        if any(logins[1:]) and find_spec("nkeys") is None:
            raise MissingExtraError("nkeys", extra="nats")
        connection = OwnedConnection(
            "the NATS connection",
            connect=partial(_connect, found, client_context(NATS, found) if found.tls else None),
            disconnect=_close,
            is_lost=lambda client: client.is_closed,
            silence=lambda client: silence((client,)),
        )
        return cls._on(NatsBackend(f"nats {found}", connection, found.options), url)
