"""The broker of a host, in front of a SQLite file in its own directory."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ._process import Server

PING: Final = b"*1\r\n$4\r\nPING\r\n"

SETTINGS: Final = """
store = "{store}"
namespace = "{namespace}"
create = true

[generators.event]
kind = "snowflake"

[machine]
instance_id = "broker"
stable = true
state_dir = "{directory}/state"
"""


class Broker(Server):
    """One broker; its store outlives it.

    Attributes:
        namespace: of its Snowflake generator ``event``, and of its machine id.
    """

    name = "broker"

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.namespace = namespace

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.directory / "broker.sock"

    @property
    def url(self) -> str:
        """The store of its workers."""
        return f"aiocosid+unix://{self.socket}"

    @property
    def root(self) -> str:
        """The store beneath."""
        return f"sqlite:///{self.directory}/ids.db"

    def prepare(self) -> None:
        """Write the settings."""
        text = SETTINGS.format(store=self.root, namespace=self.namespace, directory=self.directory)
        (self.directory / "ids.toml").write_text(text)

    def argv(self) -> Sequence[str | Path]:
        """Run it as systemd does."""
        config = self.directory / "ids.toml"
        module = (sys.executable, "-m", "aiocosid", "broker")
        return [*module, "--config", config, "--socket", self.socket]

    def is_ready(self) -> bool:
        """Tell whether it answers a command."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(self.socket))
                probe.sendall(PING)
                return probe.recv(64).startswith(b"+PONG")
            except OSError:
                return False
