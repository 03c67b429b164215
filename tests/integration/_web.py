"""Web applications behind a real uvicorn: in this process where that will do, or in one of its own.

An interpreter that imports a framework takes a second; a server on a thread takes none.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn

from tests.servers import HOST, free_port, wait_until

__all__ = ("Process", "StartError", "serve")

START = 30.0  # seconds


class StartError(Exception):
    """The application did not start."""


@contextmanager
def serve(app: Any, **options: Any) -> Generator[httpx.Client]:
    """Serve an application on a thread of this process; give a client that talks to it."""
    port = free_port()
    settings: dict[str, Any] = {
        "host": HOST,
        "port": port,
        "log_level": "warning",
        "ws": "none",
        **options,
    }
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", **settings))
    thread = threading.Thread(target=_run, args=(server,), name="uvicorn")
    thread.start()
    try:
        wait_until(
            lambda: server.started or not thread.is_alive(), "uvicorn starts", deadline=START
        )
        if not server.started:
            raise StartError
        with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=20) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(START)


def _run(server: uvicorn.Server) -> None:
    try:
        server.run()
    except SystemExit:  # a lifespan that fails
        return


class Process:
    """One uvicorn in a process of its own, with its workers.

    Attributes:
        client: talks to it.
        process: uvicorn itself.
    """

    def __init__(self, folder: Path, app: str, *options: str, **environment: str) -> None:
        port = free_port()
        self._log = folder / "uvicorn.log"
        command = [sys.executable, "-m", "uvicorn", app, "--host", HOST, "--port", str(port)]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, *options],
                cwd=folder,
                env={"PATH": "", "HOME": str(folder), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.client = httpx.Client(base_url=f"http://{HOST}:{port}", timeout=20)

    def __enter__(self) -> Self:
        wait_until(self._answers, "uvicorn answers", deadline=START)
        assert self.process.poll() is None, self.log
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.stop()

    def stop(self) -> str:
        """End it as an orchestrator does; what it wrote."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=20)
        return self.log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def _answers(self) -> bool:
        try:
            self.client.get("/health")
        except httpx.TransportError:
            return self.process.poll() is not None
        return True
