"""The id service in front of a store."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from ._process import Server


class IdService(Server):
    """``aiocosid serve --create``; its store outlives it.

    Args:
        store: the URL of the store.
    """

    name = "service"

    def __init__(self, store: str) -> None:
        super().__init__()
        self.store = store

    @property
    def url(self) -> str:
        """The store of its clients."""
        return f"aiocosid+http://{self.host}:{self.port}"

    def prepare(self) -> None:
        """Write the settings."""
        (self.directory / "ids.toml").write_text(f'store = "{self.store}"\n')

    def argv(self) -> Sequence[str | Path]:
        """Create what was never there, as people have it at each start."""
        module = (sys.executable, "-m", "aiocosid", "serve", "--create")
        listen = f"{self.host}:{self.port}"
        return [*module, "--config", self.directory / "ids.toml", "--listen", listen]

    def is_ready(self) -> bool:
        """Tell whether it listens."""
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0
