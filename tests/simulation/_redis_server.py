"""One Redis server: what it answers to a command, and who it says it is."""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING, Final

from ._lua import run_script
from ._redis_commands import COMMANDS, OK, Keyspace, RefusedError, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = ("RedisServer",)

READ_ONLY: Final = "READONLY You can't write against a read only replica."
NO_SCRIPT: Final = "NOSCRIPT No matching script. Please use EVAL."
NOT_IN_SCRIPTS: Final = {b"EVAL", b"EVALSHA", b"ROLE", b"SCRIPT", b"WAIT"}
SYNTAX: Final = "ERR syntax error"
NO_ID: Final = "0" * 40


class RedisServer:
    """A process of one server.

    Attributes:
        name: for the trace.
        space: what it holds.
        run_id: a new one for each process.
        replid: whose history its data is: a new one for each promotion, as Redis has it.
        replid2: the history before, up to ``second_offset``.
        is_master: whether it takes writes.
        is_up: whether it answers at all.
        synced: how many replicas have all writes, for WAIT.
    """

    def __init__(
        self,
        name: str,
        now: Callable[[], float],
        new_id: Callable[[], str],
        *,
        version: str = "7.2.0",
    ) -> None:
        """Start an empty master.

        Args:
            name: for the trace.
            now: the server's clock, in seconds since 1970.
            new_id: draws 40 hexadecimal digits.
            version: the version that it tells.
        """
        self.name = name
        self.space = Keyspace()
        self.run_id = new_id()
        self.replid = new_id()
        self.replid2 = NO_ID
        self.second_offset = -1
        self.is_master = True
        self.is_up = True
        self.synced = 0
        self._now = now
        self._new_id = new_id
        self._version = version
        self._scripts: dict[bytes, bytes] = {}

    # What it answers.

    def execute(self, words: Sequence[bytes], *, denied: Collection[str] = ()) -> Reply:
        """Run one command.

        Args:
            words: the command and its arguments.
            denied: commands that the user may not run.

        Raises:
            RefusedError: the reply is an error.
        """
        try:
            return self._execute(words, denied, in_script=False)
        finally:
            self.space.commit(self._now())

    def _execute(
        self, words: Sequence[bytes], denied: Collection[str], *, in_script: bool
    ) -> Reply:
        name, args = words[0].upper(), words[1:]
        if in_script and name in NOT_IN_SCRIPTS:
            raise RefusedError("ERR This Redis command is not allowed from script")
        if denied and name.decode(errors="replace").lower() in denied:
            raise RefusedError(_denial(name, in_script=in_script))
        if (command := COMMANDS.get(name)) is None:
            return self._special(name, args, denied, in_script=in_script)
        if len(args) < command.at_least or len(args) > (command.at_most or len(args)):
            raise RefusedError(_arity(name, in_script=in_script))
        if command.writes and not self.is_master:
            raise RefusedError(READ_ONLY)
        return command.run(self.space, args)

    def _special(
        self, name: bytes, args: Sequence[bytes], denied: Collection[str], *, in_script: bool
    ) -> Reply:
        """Run a command that asks about the server."""
        if name in {b"EVAL", b"EVALSHA"} and len(args) >= 2:
            return self._eval(name, args, denied)
        if name == b"SCRIPT" and args:
            return self._script(args)
        if name == b"TIME" and not args:
            microseconds = round(self._now() * 1e6)
            return [b"%d" % (microseconds // 10**6), b"%d" % (microseconds % 10**6)]
        if name == b"INFO":
            return self._info({each.lower() for each in args} or {b"all"})
        if name == b"ROLE" and not args:
            return self._role()
        if name == b"WAIT" and len(args) == 2:
            return self.synced
        if name in {b"EVAL", b"EVALSHA", b"SCRIPT", b"TIME", b"ROLE", b"WAIT"}:
            raise RefusedError(_arity(name, in_script=in_script))
        if in_script:
            raise RefusedError("ERR Unknown Redis command called from script")
        shown = name.decode(errors="replace")
        raise RefusedError(f"ERR unknown command '{shown}', with args beginning with: ")

    # Scripts

    def _eval(self, name: bytes, args: Sequence[bytes], denied: Collection[str]) -> Reply:
        script, count, *rest = args
        if not count.isdigit():
            raise RefusedError("ERR value is not an integer or out of range")
        if int(count) > len(rest):
            raise RefusedError("ERR Number of keys can't be greater than number of args")
        if name == b"EVALSHA":
            if (found := self._scripts.get(script.lower())) is None:
                raise RefusedError(NO_SCRIPT)
            script = found
        else:
            self._remember(script)

        def call(words: Sequence[bytes]) -> Reply:
            return self._execute(words, denied, in_script=True)

        keys = int(count)
        return run_script(script, rest[:keys], rest[keys:], call)

    def _remember(self, script: bytes) -> bytes:
        digest = sha1(script, usedforsecurity=False).hexdigest().encode()
        self._scripts[digest] = script
        return digest

    def _script(self, args: Sequence[bytes]) -> Reply:
        what, *rest = args
        match what.upper():
            case b"LOAD" if len(rest) == 1:
                return self._remember(rest[0])
            case b"EXISTS" if rest:
                return [int(digest.lower() in self._scripts) for digest in rest]
            case b"FLUSH" if len(rest) <= 1:
                self._scripts.clear()
                return OK
            case _:
                raise RefusedError(SYNTAX)

    # Who it is

    def _role(self) -> Reply:
        if self.is_master:
            return [b"master", self.space.offset, []]
        return [b"slave", b"127.0.0.1", 6379, b"connected", self.space.offset]

    def _info(self, sections: set[bytes]) -> Reply:
        facts: dict[bytes, dict[str, object]] = {
            b"server": {"redis_version": self._version, "run_id": self.run_id},
            b"replication": {
                "role": "master" if self.is_master else "slave",
                "connected_slaves": 0,
                "master_replid": self.replid,
                "master_replid2": self.replid2,
                "master_repl_offset": self.space.offset,
                "second_repl_offset": self.second_offset,
            },
        }
        if sections & {b"all", b"default", b"everything"}:
            sections = set(facts)
        lines: list[str] = []
        for name, told in facts.items():
            if name in sections:
                lines.append(f"# {name.decode().title()}")
                lines += [f"{fact}:{value}" for fact, value in told.items()]
                lines.append("")
        return "\r\n".join(lines).encode()

    # What becomes of it

    def start(self, space: Keyspace) -> None:
        """Start a new process on what was found on the disk."""
        if space.offset:  # as Redis since 7 does, for replicas that know the old history
            self.replid2, self.second_offset = self.replid, space.offset + 1
        else:
            self.replid2, self.second_offset = NO_ID, -1
        self.space = space
        self.run_id, self.replid = self._new_id(), self._new_id()
        self._scripts.clear()
        self.is_up = True

    def promote(self) -> None:
        """Become a master: the history so far was another one's."""
        if not self.is_master:
            self.replid2, self.second_offset = self.replid, self.space.offset + 1
            self.replid = self._new_id()
            self.is_master = True

    def follow(self, master: RedisServer, *, behind: int = 0) -> None:
        """Become a replica, and take over the master's history, but for its last writes."""
        self.is_master = False
        self.space = master.space.behind(behind)
        self.replid, self.replid2 = master.replid, master.replid2
        self.second_offset = master.second_offset

    def __repr__(self) -> str:
        """Name it, and its role."""
        return f"<RedisServer {self.name} {'master' if self.is_master else 'replica'}>"


def _arity(name: bytes, *, in_script: bool) -> str:
    if in_script:
        return "ERR Wrong number of args calling Redis command from script"
    return f"ERR wrong number of arguments for '{name.decode(errors='replace').lower()}' command"


def _denial(name: bytes, *, in_script: bool) -> str:
    command = name.decode(errors="replace").lower()
    if in_script:
        return "ERR ACL failure in script: The user executing the script can't run this command"
    return f"NOPERM User limited has no permissions to run the '{command}' command"
