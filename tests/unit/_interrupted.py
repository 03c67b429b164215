"""A stand-in for what Python runs between two lines: signal handlers and finalizers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any


@contextmanager
def interrupted(room: ModuleType, at: str, handler: Callable[[], object]) -> Generator[None]:
    """Run ``handler`` at each "line", "call" or "opcode" of a package's code, by tracing it."""
    (folder,) = room.__path__

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(folder):
            return None
        frame.f_trace_opcodes = at == "opcode"
        if event == at:
            handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
