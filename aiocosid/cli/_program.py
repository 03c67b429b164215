"""``aiocosid machines run``, without typer, to keep the memory of a long-lived process small."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Final

from ..abc.machines import DEFAULT_GUARD_INTERVAL, STABLE_GUARD_INTERVAL
from ..errors import InvalidArgumentError
from ._supervisor import KILL_MARGIN, Expression, supervise

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ("parser", "run")

NOT_THE_LEASE_S: Final = {"command", "env", "grace"}

EPILOG: Final = """\
examples:
  aiocosid machines run --store redis://redis/0 --namespace shop -- java -jar shop.jar
  aiocosid machines run --bits 10 --env WORKER_ID='id&31' --env DATACENTER_ID='id>>5' -- ./server

The program is ended before another process can get its machine id: SIGTERM, then SIGKILL after
--grace. The exit status is the program's; 75 if the machine id was lost; 2, 3 or 4 if none was
available.
"""


def run(argv: Sequence[str]) -> int:
    """Run a program under a leased machine id, and return its exit status.

    Args:
        argv: the words after ``machines run``.

    Raises:
        InvalidArgumentError: an option is wrong; nothing was started.
    """
    given = parser().parse_args(argv)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        raise InvalidArgumentError("CMD", None, "is required: the program to run, after '--'")
    variables = [_expression(each) for each in given.env or ["MACHINE_ID"]]
    if given.grace is None:
        given.grace = 3.0 if given.instance_id else 10.0
    if not given.grace > 0:
        raise InvalidArgumentError("--grace", given.grace, "must be a number of seconds above 0")
    _check_lead(given)
    lease = {each: value for each, value in vars(given).items() if each not in NOT_THE_LEASE_S}
    return supervise(partial(_serve, lease), command, variables, grace=given.grace)


def _serve(options: dict[str, object], supervisor: socket.socket) -> NoReturn:
    from ._renewer import LeaseRequest, serve

    serve(LeaseRequest(**options), supervisor)  # type: ignore[arg-type]  # as the parser has them


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(
        prog="aiocosid machines run",
        description="Run a program in any language with a machine id that no other process has.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add(
        "--store",
        metavar="URL",
        help="the store (default: AIOCOSID_STORE, or the store of --config)",
    )
    add("--config", metavar="FILE", help="take store and namespace from a TOML file")
    add("--namespace", help="the namespace of the machine id (default: the store's)")
    add("--bits", type=int, default=10, help="the width of the worker id, in bits (default: 10)")
    add("--region", type=int, metavar="N", help="the region of the store; requires --region-bits")
    add(
        "--region-bits",
        type=int,
        default=0,
        metavar="N",
        help="how many bits name the region (default: 0)",
    )
    add(
        "--env",
        action="append",
        metavar="NAME[=id>>N&M]",
        help="a variable to set to the machine id, or to a part of it (default: MACHINE_ID)",
    )
    add(
        "--instance",
        dest="instance_id",
        metavar="NAME",
        help="a stable name that keeps its machine id over restarts, such as the name of a "
        "StatefulSet's pod",
    )
    add(
        "--safe-guard",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long after its last renewal the machine id stays reserved (default: 300)",
    )
    add(
        "--interval",
        type=float,
        metavar="SECONDS",
        help="time between renewals (default: 60; with --instance 10)",
    )
    add(
        "--lead",
        type=float,
        metavar="SECONDS",
        help="time from a renewal to the fence, up to which the program may issue ids; if the "
        "store is down, the program gets SIGTERM --grace and 1 s before the fence; after a crash, "
        "the next run with the same --instance waits for the fence (default: 1.5 intervals)",
    )
    add(
        "--grace",
        type=float,
        metavar="SECONDS",
        help="time between SIGTERM and SIGKILL (default: 10; with --instance 3, because renewals "
        "are 10 s apart)",
    )
    add("command", nargs=argparse.REMAINDER, metavar="-- CMD ARG...", help="the program")
    return made


def _expression(text: str) -> Expression:
    found = Expression.read(text)
    if found is None:
        rule = "must be NAME, or NAME=id followed by >>N, &N, +N or %N, such as WORKER_ID=id&31"
        raise InvalidArgumentError("--env", text, rule)
    return found


def _check_lead(given: argparse.Namespace) -> None:
    """Raise if the program would be ended although renewals come in time."""
    usual = STABLE_GUARD_INTERVAL if given.instance_id else DEFAULT_GUARD_INTERVAL
    interval = given.interval or usual
    lead = given.lead or 1.5 * interval
    shortest = lead - interval
    if given.grace + KILL_MARGIN >= shortest:
        rule = (
            f"must be below {shortest - KILL_MARGIN:g}: a deadline is at least {shortest:g} s "
            "ahead (--lead less --interval)"
        )
        raise InvalidArgumentError("--grace", given.grace, rule)
