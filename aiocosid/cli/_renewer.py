"""The process of ``aiocosid machines run`` that holds the lease; see `_supervisor`."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import traceback
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import CosIdError
from ..machine import InstanceId, MachineIdLease
from ._exit import code_of, one_line, redacted
from ._stores import chosen_store
from ._supervisor import KILL_MARGIN, LOST, POLL, Deadline, boot_time, kill_group

if TYPE_CHECKING:
    import socket
    from typing import NoReturn

__all__ = ("LeaseRequest", "serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """The lease that the command line asks for.

    Attributes:
        store: the store's URL; None for the one that the environment or the settings name.
        config: a file of settings.
        namespace: the machine ids' namespace; None for the store's.
        bits: the width of the machine id.
        region: the region of the store; None for no regions.
        region_bits: how many of the bits name the region.
        instance_id: the name of a stable instance; None for a new instance.
        safe_guard: seconds after the last renewal for which the machine id stays reserved.
        interval: seconds between renewals; None for the default.
        lead: seconds from a renewal to the fence, before which the program is ended if no later
            renewal succeeds; None for the default.
    """

    store: str | None
    config: str | None
    namespace: str | None
    bits: int
    region: int | None
    region_bits: int
    instance_id: str | None
    safe_guard: float
    interval: float | None
    lead: float | None


def serve(request: LeaseRequest, supervisor: socket.socket) -> NoReturn:
    """Hold a lease until the supervisor ends, or reports that the program has ended."""
    code = LOST
    try:
        os.setpgid(0, 0)  # so that a signal to the terminal's group does not reach it
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(each, signal.SIG_IGN)  # it must renew until the program has ended
        signal.set_wakeup_fd(-1)
        supervisor.setblocking(False)
        asyncio.run(_Renewal(supervisor).run(request))
        code = 0
    except CosIdError as error:
        code = int(code_of(error))
        text = one_line(redacted(str(error)))
        with suppress(OSError):
            supervisor.send(f"failed {code} {text}\n".encode())
    except Exception:  # noqa: BLE001 - a bug: the program is ended, and this says why
        traceback.print_exc()
    finally:
        os._exit(code)


class _Ticks:
    """The latest tick in which the program may have issued ids: the latest time seen so far."""

    def __init__(self) -> None:
        self._latest = -1

    @property
    def last_ms(self) -> int:
        """The latest tick, in milliseconds since 1970."""
        self._latest = max(self._latest, int(time.time() * 1000))
        return self._latest


class _Renewal:
    def __init__(self, supervisor: socket.socket) -> None:
        self._supervisor = supervisor
        self._program = 0
        self._deadline: Deadline | None = None
        self._reported: Deadline | None = None

    async def run(self, request: LeaseRequest) -> None:
        listening = asyncio.create_task(self._listen())
        leasing = asyncio.create_task(self._lease(request))
        await asyncio.wait({listening, leasing}, return_when=asyncio.FIRST_COMPLETED)
        if leasing.done():
            listening.cancel()
            self._kill()
            leasing.result()
        else:
            # The cancelled task closes the lease, which releases its machine id.
            leasing.cancel()
            with suppress(asyncio.CancelledError):
                await leasing

    async def _lease(self, request: LeaseRequest) -> None:
        chosen = chosen_store(request.store, request.config)
        async with aclosing(chosen.make()) as store:
            distributor = store.machine_id_distributor(
                namespace=request.namespace or chosen.namespace,
                instance_id=request.instance_id and InstanceId(request.instance_id, stable=True),
                safe_guard=request.safe_guard,
                interval=request.interval,
                region=request.region,
                region_bits=request.region_bits,
            )
            lease = MachineIdLease(
                distributor, bits=request.bits, on_lost="raise", lead=request.lead
            )
            async with lease:
                await _sleep_until(max(lease.floor_ms, lease.taken_ms))
                ticks = lease.issuers["program"] = _Ticks()
                while lease.lost is None:
                    self._report(lease)
                    ticks.last_ms  # noqa: B018 - it notes the time
                    self._guard()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(lease.on_change()(), POLL)
                raise lease.lost

    def _report(self, lease: MachineIdLease) -> None:
        now, limit_ms = boot_time(), lease.limit_ms()  # first: it may be stopped after any line
        deadline = Deadline(now + lease.statistics().seconds_left, limit_ms)
        last = self._reported
        # After the clock steps back, the fence stands still while the end of the lease moves on.
        if limit_ms < 0 or (last is not None and deadline.is_nearly(last)):
            return
        self._deadline = deadline
        line = f"until {lease.machine_id} {deadline.boot_time} {deadline.fence_ms}\n"
        with suppress(BlockingIOError):  # it is stopped; it gets the next report when it continues
            self._supervisor.send(line.encode())
            self._reported = deadline

    def _guard(self) -> None:
        """Kill the program before the deadline if the supervisor, which may be stopped, has not."""
        if self._deadline is not None and self._deadline.left() < KILL_MARGIN - 2 * POLL:
            self._kill()

    def _kill(self) -> None:
        if self._program:
            kill_group(self._program, signal.SIGKILL)

    async def _listen(self) -> None:
        """Return when the supervisor ends, or reports that the program has ended."""
        loop = asyncio.get_running_loop()
        rest = b""
        while True:
            try:
                data = await loop.sock_recv(self._supervisor, 4096)
            except OSError:
                data = b""
            if not data:
                self._kill()
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                word, _, value = line.decode().partition(" ")
                if word == "program":
                    self._program = int(value)
                elif word == "ended":
                    return


async def _sleep_until(floor_ms: int) -> None:
    """Wait until the clock is past the former owner's last tick."""
    while (left := floor_ms / 1000 - time.time()) >= 0:  # noqa: ASYNC110 - of a clock
        await asyncio.sleep(min(left + 0.001, POLL))
