"""What the help of each command shows as examples: the words after its name."""

from __future__ import annotations

from typing import Final

__all__ = ("EXAMPLES",)

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "next": ("order", "order -n 100 --format json"),
    "snowflake": ("-n 3 --store redis://localhost/0", "--layout javascript-safe-ms"),
    "parse": ("266300479548424192 --zone Asia/Shanghai", "--at 2026-11-23T12:00Z"),
    "set-floor": ("order --above 5000", "order --from-table orders.id"),
    "series open": ("invoice --after 4711", "invoice --group-by year --zone Europe/Berlin"),
    "series list": ("--format json",),
    "series close": ("invoice",),
    "series audit": ("invoice --column invoices.number",),
    "init": ("--store sqlite:///ids.db", "--config ids.toml --yes"),
    "doctor": ("--store redis://localhost/0", "--config ids.toml --strict"),
    "inspect": ("--namespace shop", "--format json"),
    "watch": ("--interval 5", "--once"),
    "bench": ("--store memory:// --seconds 1",),
    "migrate check": ("--from leaf --store mysql://user@localhost/leaf",),
    "machines list": ("--namespace shop",),
    "machines evict": ("3 --namespace shop",),
    "machines forget": ("old",),
    "machines repair": ("--namespace shop",),
    "machines bits": ("--namespace shop", "--namespace shop --set 10"),
    "machines floor": ("--above-time 2026-11-23T12:00Z --namespace shop",),
    "serve": ("--config ids.toml --listen 127.0.0.1:8688",),
    "broker": ("--store redis://localhost/0 --socket /run/ids.sock",),
    "token new": ("--name shop --names 'order*' --expires-in 365",),
    "check-config": ("ids.toml --strict",),
    "groups check": ("ids.toml --at 2027-01-01T00:00+08:00",),
}
