"""Where the machine ids of a namespace lie in etcd, and the texts that lie there."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from math import inf
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from ...abc._machine import MAX_MACHINE_BITS
from ...errors import CorruptMachineStateError
from .._arguments import MAX_MS
from ._errors import STORE

__all__ = ("EntryText", "MachineKeys", "MarkerText")

FOLDER: Final = "machine"
DIGITS: Final = re.compile(rb"[0-9]{8,10}")


class MachineKeys:
    """The keys of one namespace, ``<prefix>/machine/<namespace>/...``.

    The namespace is percent-encoded, and its dots as well: so no counter has such a key.

    Attributes:
        namespace: the namespace.
        root: what all of them begin with.
        marker: whether all is known of who holds what.
        quarantine: there as long as a quarantine lasts.
    """

    __slots__ = ("_alive", "_entries", "marker", "namespace", "quarantine", "root")

    def __init__(self, prefix: str, namespace: str) -> None:
        self.namespace = namespace
        quoted = quote(namespace, safe="").replace(".", "%2E")
        self.root = self.all_of(prefix) + f"{quoted}/".encode()
        self.marker = self.root + b"marker"
        self.quarantine = self.root + b"quarantine"
        self._entries, self._alive = self.root + b"id/", self.root + b"alive/"

    @staticmethod
    def all_of(prefix: str) -> bytes:
        """Return what the keys of all namespaces begin with."""
        return f"{prefix}/{FOLDER}/".encode()

    @staticmethod
    def namespace_of(prefix: str, key: bytes) -> str:
        """Return the namespace of a key that begins so."""
        rest = key.removeprefix(MachineKeys.all_of(prefix))
        return unquote(rest.partition(b"/")[0].decode(errors="replace"))

    def entry(self, machine_id: int) -> bytes:
        """Return the key of a machine id."""
        return self._entries + b"%08d" % machine_id

    def alive(self, machine_id: int) -> bytes:
        """Return the key that ends with its owner's lease."""
        return self._alive + b"%08d" % machine_id

    def entry_of(self, key: bytes) -> int | None:
        """Return of which machine id this is the key; None if it is another key."""
        return _number(key, self._entries)

    def alive_of(self, key: bytes) -> int | None:
        """Return of which machine id this is the sign of life; None if it is another key."""
        return _number(key, self._alive)


def _number(key: bytes, start: bytes) -> int | None:
    digits = key.removeprefix(start)
    return int(digits) if digits != key and DIGITS.fullmatch(digits) else None


@dataclass(frozen=True, slots=True)
class EntryText:
    """What lies there of one machine id.

    Attributes:
        instance: who holds it; empty if it was given back.
        stable: whether the owner said that it is.
        stamp: the latest time that an owner told, in ms; -1 for none.
        mark: no id was issued with a later time, in ms; -1 for none.
        token: of the call that handed it out last.
        claimed: the quarantine in which its owner asserted it, or empty.
        born: when the owner asked for it, by its clock in ms, if it was asserted.
    """

    instance: str
    stable: bool
    stamp: int
    mark: int
    token: str | None
    claimed: str = ""
    born: int = 0

    @classmethod
    def read(cls, key: bytes, value: bytes) -> EntryText:
        """Read it.

        Raises:
            CorruptMachineStateError: it is something else.
        """
        facts = _facts(key, value, set(cls.__slots__))
        is_right = (
            all(isinstance(facts[name], str) for name in ("instance", "claimed"))
            and isinstance(facts["stable"], bool)
            and all(_is_time(facts[name]) for name in ("stamp", "mark", "born"))
            and isinstance(facts["token"], str | None)
        )
        if not is_right:
            raise _damage(key, value)
        if facts["token"] is not None:
            facts["token"] = sys.intern(facts["token"])  # a pool tells tokens apart by identity
        return cls(**facts)

    def text(self) -> bytes:
        """Return it as it is written."""
        return _text({name: getattr(self, name) for name in self.__slots__})


@dataclass(frozen=True, slots=True)
class MarkerText:
    """What lies there of a whole namespace.

    Attributes:
        cluster: the id of the cluster that has forgotten nothing, in hexadecimal.
        term: the cluster's raft term, as it was when this was written last.
        bits: the width of the machine ids; 0 if none was handed out.
        guard: the longest safe guard that was ever named, in seconds; 0 if none was.
        quarantine: a name for the quarantine that runs, or empty.
    """

    cluster: str
    term: int
    bits: int
    guard: float
    quarantine: str

    @classmethod
    def read(cls, key: bytes, value: bytes) -> MarkerText:
        """Read it.

        Raises:
            CorruptMachineStateError: it is something else.
        """
        facts = _facts(key, value, set(cls.__slots__))
        if facts["guard"] == "inf":  # of which JSON knows no number
            facts["guard"] = inf
        is_right = (
            all(isinstance(facts[name], str) for name in ("cluster", "quarantine"))
            and all(type(facts[name]) is int for name in ("term", "bits"))
            and 0 <= facts["bits"] <= MAX_MACHINE_BITS
            and type(facts["guard"]) in {int, float}
            and facts["guard"] >= 0
        )
        if not is_right:
            raise _damage(key, value)
        return cls(**facts)

    def text(self) -> bytes:
        """Return it as it is written."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        if self.guard == inf:
            facts["guard"] = "inf"
        return _text(facts)


def _text(facts: dict[str, object]) -> bytes:
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()


def _facts(key: bytes, value: bytes, names: set[str]) -> dict[str, Any]:
    try:
        facts: Any = json.loads(value)
    except (ValueError, RecursionError):
        raise _damage(key, value) from None
    if type(facts) is not dict or {*cast("dict[str, Any]", facts)} != names:
        raise _damage(key, value)
    return cast("dict[str, Any]", facts)


def _is_time(value: object) -> bool:
    return type(value) is int and -1 <= value <= MAX_MS


def _damage(key: bytes, value: bytes) -> CorruptMachineStateError:
    return CorruptMachineStateError(
        STORE,
        place=key.decode(errors="backslashreplace"),
        found=repr(value),
        expected="what aiocosid writes there",
    )
