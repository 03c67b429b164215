"""Ids in Temporal: a plugin that keeps the provider open while a worker runs.

Activities take ids from the process's default provider.  Once this module is imported, workflow
code gets no ids, because a replay would get different ones.  It raises `WrongLoopError` instead,
which fails the workflow task; Temporal retries the task once a corrected worker runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.plugin import SimplePlugin
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from ..abc import refuse_loops
from ..errors import WrongLoopError
from .source import opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from temporalio.worker import Worker, WorkflowRunner

    from .source import Source

__all__ = ("CosIdWorkerPlugin",)

# These modules are imported by a workflow's module through its activities, but a workflow's sandbox
# cannot reload them.
_PASSED_THROUGH = ("aiocosid", "aiosqlite", "anyio", "sniffio")


class CosIdWorkerPlugin(SimplePlugin):
    """Keeps a provider open while a Temporal worker runs.

    Activities find it as the process's default provider::

        @activity.defn
        async def new_order_id() -> int:
            return await aiocosid.generator_named("order").next_id()

    If the provider cannot be opened, ``Worker.run`` raises before the first task is taken.
    Workflow modules may import aiocosid.  A `Replayer` with this plugin opens nothing.

    Args:
        source: a provider that is not open yet; or a function, called each time a worker runs, that
            returns a provider or an asynchronous context manager of one.
    """

    def __init__(self, source: Source) -> None:
        plugin: Any = super()  # its types are only partly known
        plugin.__init__("aiocosid", workflow_runner=_with_aiocosid)
        self._source = source

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002 - Temporal's name
        """Run a worker with the provider open; called by Temporal."""
        async with opened(self._source):
            await super().run_worker(worker, next)


def _refuse_in_workflow(what: str) -> None:
    if workflow.in_workflow():
        raise WrongLoopError(
            what,
            reason="gives no ids to the code of a Temporal workflow, because a replay would get "
            "different ones",
            remedy="take the id in an activity and return it, or use workflow.uuid4(), which a "
            "replay repeats",
        )


refuse_loops(_refuse_in_workflow)


def _with_aiocosid(runner: WorkflowRunner | None) -> Any:  # noqa: ANN401 - Temporal's parameter
    """Let a sandbox use the loaded aiocosid; another kind of runner stays unchanged."""
    if isinstance(runner, SandboxedWorkflowRunner):
        restrictions = runner.restrictions.with_passthrough_modules(*_PASSED_THROUGH)
        return replace(runner, restrictions=restrictions)
    return runner
