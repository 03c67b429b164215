"""Whom an etcd gives which machine id, and until when, as the shipped transactions say it."""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ...stores.etcd._driver import rpc
from ...stores.etcd._machine_keys import EntryText, MachineKeys, MarkerText
from ...stores.etcd._server import put

if TYPE_CHECKING:
    from ._etcd_state import EtcdState, Keys
    from ._ledger import Ledger
    from ._process import Process

__all__ = ("EtcdGrants", "marking")

KEY: Final = re.compile(rb".*/machine/([^/]+)/(id|alive)/([0-9]+)")


class EtcdGrants:
    """Tells a ledger what is written about machine ids."""

    def __init__(self, state: EtcdState, ledger: Ledger) -> None:
        """Begin with a cluster that has handed out none."""
        self._state = state
        self._ledger = ledger
        self._owners: dict[bytes, tuple[str, int, Process]] = {}  # by their signs of life
        self._tokens = set[str | None]()

    def note(self, request: Any, before: Keys, process: Process) -> None:  # noqa: ANN401 - the driver's
        """Look at a transaction that was carried out.

        Args:
            request: what was asked for.
            before: the keys until then.
            process: who asked.
        """
        for key in (each.request_put.key for each in request.success):
            match = KEY.fullmatch(key)
            if match is not None and match[2] == b"alive":
                self._owners[key] = *_place(match), process
            elif match is not None:
                # An owner that asserts an id, or gives it back, has the token of the call before.
                token = EntryText.read(key, self._state.keys[key].value).token
                if token not in self._tokens:
                    self._tokens.add(token)
                    old = EntryText.read(key, before[key].value) if key in before else None
                    floor_ms = max(old.stamp, old.mark) if old else -1
                    self._ledger.granted(*_place(match), process, floor_ms=floor_ms)

    def tell(self) -> None:
        """Say how long all leases are now."""
        for key, place in self._owners.items():
            if (found := self._state.keys.get(key)) is not None:
                until = self._state.leases[found.lease].ends if found.lease else inf
                self._ledger.renewed(*place, until=until)


def _place(match: re.Match[bytes]) -> tuple[str, int]:
    return unquote(match[1].decode()), int(match[3])


def marking(state: EtcdState, prefix: str, namespace: str) -> Any:  # noqa: ANN401 - the driver's
    """Return the transaction that marks a cluster as one that has forgotten no machine id."""
    text = MarkerText(f"{state.cluster:x}", state.term, bits=0, guard=0.0, quarantine="").text()
    return rpc.TxnRequest(success=[put(MachineKeys(prefix, namespace).marker, text)])
