"""Applications in processes of their own, and load from the other cores."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

__all__ = ("HOST", "free_port", "load_tool", "processor_time", "rate", "running", "serving")

HOST = "127.0.0.1"
START = 30.0  # seconds


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def running(command: Sequence[str], port: int, path: Path | None = None) -> Generator[str]:
    """Run a server on this core, at a port or a Unix socket; give its URL once it listens."""
    with serving(command, port, path) as (url, _):
        yield url


@contextmanager
def serving(
    command: Sequence[str], port: int, path: Path | None = None
) -> Generator[tuple[str, int]]:
    """Do the same; give the number of its process, too."""
    process = subprocess.Popen([sys.executable, *command])  # noqa: S603 - ours
    until = perf_counter() + START
    try:
        while True:
            try:
                _connect(port, path)
                break
            except OSError:
                assert process.poll() is None, "the server has ended"
                assert perf_counter() < until, "the server does not answer"
        yield f"http://{HOST}:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


def processor_time(number: int) -> float:
    """Return the seconds that a process has run so far, on Linux."""
    found = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(found[11]) + int(found[12])) / os.sysconf("SC_CLK_TCK")


def _connect(port: int, path: Path | None) -> None:
    if path is None:
        socket.create_connection((HOST, port)).close()
        return
    with socket.socket(socket.AF_UNIX) as found:
        found.connect(str(path))


def load_tool() -> str:
    """Name what asks."""
    return "wrk" if shutil.which("wrk") else "our own load"


def rate(
    url: str,
    seconds: float,
    *,
    connections: int = 16,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
) -> float:
    """Return the requests a second that a route answers with 200."""
    wrk, given = shutil.which("wrk"), dict(headers or {})
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "method.lua")
        script.write_text(f'wrk.method="{method}"\n')
        if wrk is not None:
            asked = [wrk, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"]
            asked += [part for name in given for part in ("-H", f"{name}: {given[name]}")]
            asked += ["-s", str(script), url]
        else:
            lines = "".join(f"{name}: {text}\r\n" for name, text in given.items())
            words = (url, str(seconds), str(connections), method, lines)
            asked = [sys.executable, "-m", __name__, *words]
        done = subprocess.run(  # noqa: S603 - ours
            asked, check=True, capture_output=True, text=True, preexec_fn=leave_core
        )
    assert "Non-2xx" not in done.stdout, done.stdout
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


def leave_core() -> None:
    """Load comes from the other cores, if there are any."""
    if hasattr(os, "sched_setaffinity"):
        mine, count = os.sched_getaffinity(0), os.cpu_count() or 1
        os.sched_setaffinity(0, set(range(count)) - mine or mine)


async def load(url: str, seconds: float, connections: int, method: str, headers: str) -> float:
    """Send requests over some connections, one after the other on each; requests a second."""
    host, port, path = re.fullmatch(r"http://([\d.]+):(\d+)(/.*)", url).groups()  # type: ignore[union-attr]  # ours
    request = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n".encode()
    until = perf_counter() + seconds

    async def one() -> int:
        reader, writer = await asyncio.open_connection(host, int(port))
        answered = 0
        while perf_counter() < until:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            answered += 1
        writer.close()
        return answered

    begin = perf_counter()
    answered = sum(await asyncio.gather(*(one() for _ in range(connections))))
    return answered / (perf_counter() - begin)


def main(arguments: Sequence[str]) -> None:
    """Be the load, as wrk would."""
    url, seconds, connections, method, headers = arguments
    found = asyncio.run(load(url, float(seconds), int(connections), method, headers))
    print(f"Requests/sec: {found}")


if __name__ == "__main__":
    main(sys.argv[1:])
