"""Small files that survive a crash, and the records of instances that start without their store."""

# ruff: noqa: PLC0414 - re-exported

from __future__ import annotations

from ..abc.restart import VOID as VOID
from ..abc.restart import RestartPlace as RestartPlace
from ..abc.restart import RestartRecord as RestartRecord
from ._files import read_text as read_text
from ._files import write_text as write_text
from ._restart import unconfirmed_record as unconfirmed_record
from ._restart import unconfirmed_since_ms as unconfirmed_since_ms
from ._storage import in_thread as in_thread
from .restart_file import restart_file as restart_file

__all__ = (
    "VOID",
    "RestartPlace",
    "RestartRecord",
    "in_thread",
    "read_text",
    "restart_file",
    "unconfirmed_record",
    "unconfirmed_since_ms",
    "write_text",
)
