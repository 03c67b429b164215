"""What a simulated world raises."""

from __future__ import annotations

__all__ = ("NothingLeftError", "RefusedError", "SimulationError")


class NothingLeftError(AssertionError):
    """Everybody waits and no timer is left, or somebody spins: time cannot go on.

    Attributes:
        waiting: the tasks that have not ended.
    """

    def __init__(
        self, now: float, waiting: list[str], *, reason: str = "nothing is left to happen"
    ) -> None:
        super().__init__(f"at {now:g} s {reason}; these wait: {', '.join(waiting) or 'nobody'}")
        self.waiting = waiting


class SimulationError(AssertionError):
    """An invariant did not hold.  The message has the trace and the command that repeats it.

    Attributes:
        seed: the seed of the world.
        reason: which invariant, with its facts.
        trace: what happened last, a line an event.
        command: repeats the run.
    """

    def __init__(self, seed: int, reason: str, *, trace: list[str], command: str) -> None:
        super().__init__(
            "\n".join([f"seed {seed}: {reason}", *(f"  {line}" for line in trace), f"$ {command}"])
        )
        self.seed = seed
        self.reason = reason
        self.trace = trace
        self.command = command


class RefusedError(Exception):
    """A store refuses, or does not know itself; for its driver.

    Attributes:
        code: the kind of refusal.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
