"""Warns about settings that can be built, but are probably mistakes.

The only I/O is to read a certificate's end from its file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...abc import GroupedId
from ...errors import InvalidIdError
from ...snowflake import JAVASCRIPT_MAX_SAFE_ID
from ._addresses import address_of, is_loopback
from ._planned import LIMITS
from .certificates import certificate_ends

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ...snowflake import SnowflakeLayout
    from ._planned import Planned
    from ._server import ServerSettings

__all__ = ("expiry_warnings_of", "highest_of", "server_warnings_of", "warnings_of")

WEEK_MS: Final = 7 * 86_400_000
YEAR_MS: Final = 365 * 86_400_000
MS: Final = 1000
UNBOUND: Final = {"uuid4", "uuid7", "counter", "own"}
"""Kinds that have no highest number."""

Warned = tuple[tuple[str, ...], str]


def warnings_of(planned: Collection[Planned], now_ms: int) -> Iterator[Warned]:
    """Yield each warning with its place."""
    planned = [part for each in planned for part in (each, each.inner) if part is not None]
    around = {each.path for each in planned if each.inner is not None}
    for each in planned:
        at = each.path
        kind = each.section.kind
        if each.store.startswith("memory:") or kind == "counter":
            yield (
                at,
                "is known to one process only: another one, or its next start, makes the same ids",
            )
        if each.fields is not None:
            yield from _of_layout(each, each.fields, now_ms)
        if each.text is None and kind not in UNBOUND and at[:-1] not in around:
            yield from _of_texts(each)
    yield from _of_machines(planned)


def server_warnings_of(server: ServerSettings, now_ms: int) -> Iterator[Warned]:
    """Yield each warning about the id service with its place."""
    hosts = [address_of(each).host for each in server.listen]
    if any(host and not is_loopback(host) for host in hosts):
        at = ("server", "listen")
        if not server.tokens and server.insecure:
            yield at, "has an address where every client may do everything: there are no tokens"
        elif not server.tokens:
            yield (
                at,
                "has an address that is refused without tokens: `aiocosid token new --name NAME`",
            )
        elif server.tls_certificate is None:
            yield at, "has an address where tokens can be read on their way, without TLS"
    for index, token in enumerate(server.tokens):
        if token.ids_per_second is not None and server.workers > 1:
            place = ("server", "tokens", str(index), "ids_per_second")
            yield place, f"counts in each process: {server.workers} processes each allow that many"
    yield from expiry_warnings_of(server, now_ms)


def expiry_warnings_of(server: ServerSettings, now_ms: int) -> Iterator[Warned]:
    """Yield each token that has expired, and a certificate that has or will within a week."""
    for index, token in enumerate(server.tokens):
        if token.expires is not None and token.expires.timestamp() * MS <= now_ms:
            yield ("server", "tokens", str(index)), "has expired: remove it, or make a new one"
    if server.tls_certificate is None:
        return
    at = ("server", "tls_certificate")
    try:
        ends = certificate_ends(server.tls_certificate)
    except OSError:
        return  # the file is on another machine; a server that cannot read it fails
    except ValueError:
        yield at, "has no certificate in PEM format"
        return
    left_ms = ends.timestamp() * MS - now_ms
    if left_ms <= 0:
        yield at, f"has expired, at {ends:%Y-%m-%dT%H:%M:%SZ}: clients refuse it"
    elif left_ms < WEEK_MS:
        yield at, f"expires within a week, at {ends:%Y-%m-%dT%H:%M:%SZ}: clients refuse it then"


def _of_layout(planned: Planned, fields: SnowflakeLayout, now_ms: int) -> Iterator[Warned]:
    at = planned.path if planned.layout is None else (*planned.path, "layout")
    if fields.ms_of(fields.last_tick + 1) - now_ms < YEAR_MS:
        yield at, f"ends within a year, at {fields.last_instant_text}: move to another layout"
    if fields.last_instant is None:
        unit = "a second" if fields.unit_ms == MS else f"{fields.unit_ms} ms"
        what = f"{fields.timestamp_bits} bits count ticks of {unit}"
        yield at, f"lasts beyond the year 9999, as {what}: is the unit right?"
    if planned.text is None and fields.epoch_ms == 0:
        yield (
            (*at, "epoch"),
            "is 1970; CosId replaces an epoch of 0 with its own, 1577203200000, in any unit",
        )


def _of_texts(planned: Planned) -> Iterator[Warned]:
    section, highest = planned.section, highest_of(planned)
    if planned.converter is None:
        is_limited = section.limit is not None or planned.fields is None
        if highest > JAVASCRIPT_MAX_SAFE_ID and not is_limited:
            remedy = (
                "a converter, a layout such as javascript-safe-ms, or limit = 'int64' if none reads"
            )
            reason = f"makes numbers up to {highest}, which JavaScript rounds; give it {remedy}"
            yield planned.path, f"{reason} them there"
        return
    if planned.group_by is not None and section.converter.group_prefix is None:
        remedy = "add group_prefix = {}, unless it is written elsewhere"
        yield (
            (*planned.path, "converter"),
            f"does not write the group, and numbers start again in each; {remedy}",
        )
    example: Any = GroupedId(highest, "20260101") if planned.group_by is not None else highest
    try:
        planned.converter.as_str(example)
    except InvalidIdError as error:
        remedy = "more characters" if planned.fields is not None else "more characters, or a max_id"
        yield (*planned.path, "converter"), f"does not reach the last id; give it {remedy}: {error}"


def highest_of(planned: Planned) -> int:
    """Return the highest id that a generator can issue."""
    if planned.fields is not None:
        return planned.fields.max_id
    limit = LIMITS["int32" if planned.section.kind == "int32" else planned.section.limit or "int64"]
    return int(getattr(planned.section, "max_id", None) or limit)


def _of_machines(planned: Collection[Planned]) -> Iterator[Warned]:
    """Yield a warning if one namespace's machine ids come from two stores: they repeat numbers."""
    seen: dict[str, Planned] = {}
    for each in planned:
        if each.fields is None or each.sharded is not None or not each.store:
            continue
        first = seen.setdefault(each.namespace, each)
        if first.place != each.place:
            other = f"{'.'.join(first.path)}, in the same namespace {each.namespace!r}"
            reason = f"takes its machine ids from a store other than {other}: both have a machine 0"
            yield each.path, f"{reason}, and their ids may be equal"
