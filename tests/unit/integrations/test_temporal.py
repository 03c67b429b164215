"""Temporal's own activity environment and replayer: ids in activities, and none in workflows."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import pytest

pytest.importorskip("temporalio")

from temporalio.client import WorkflowHistory
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

import aiocosid
from aiocosid.integrations.temporal import CosIdWorkerPlugin
from aiocosid.sync import _session

from . import _workflows


@pytest.fixture(autouse=True, scope="module")
def no_thread_is_left() -> Iterator[None]:
    """Let other tests count the background threads: a sandbox has `_workflows` of its own."""
    yield
    _session._close_all()


REFUSED = "take the id in an activity and return it, or use workflow.uuid4"


def history(workflow: type, *results: int) -> WorkflowHistory:
    """A run of a workflow, as a server records it: activities with these results, one by one."""
    queue = {"name": "queue"}
    events: list[dict[str, object]] = []

    def record(kind: str, **facts: object) -> str:
        words = kind.split("_")
        attributes = words[0].lower() + "".join(map(str.title, words[1:])) + "EventAttributes"
        number = str(len(events) + 1)
        event = {"eventId": number, "eventTime": "2026-01-01T00:00:00Z"}
        events.append({**event, "eventType": f"EVENT_TYPE_{kind}", attributes: facts})
        return number

    def task() -> str:
        scheduled = record("WORKFLOW_TASK_SCHEDULED", taskQueue=queue, attempt=1)
        started = record("WORKFLOW_TASK_STARTED", scheduledEventId=scheduled)
        ids = {"scheduledEventId": scheduled, "startedEventId": started}
        return record("WORKFLOW_TASK_COMPLETED", **ids)

    run = "0b1c2d3e-0000-4000-8000-000000000000"
    record(
        "WORKFLOW_EXECUTION_STARTED",
        workflowType={"name": workflow.__name__},
        taskQueue=queue,
        attempt=1,
        originalExecutionRunId=run,
        firstExecutionRunId=run,
    )
    done = task()
    for number, result in enumerate(results, 1):
        scheduled = record(
            "ACTIVITY_TASK_SCHEDULED",
            activityId=str(number),
            activityType={"name": "new_order_id"},
            taskQueue=queue,
            workflowTaskCompletedEventId=done,
            startToCloseTimeout="10s",
        )
        started = record("ACTIVITY_TASK_STARTED", scheduledEventId=scheduled, attempt=1)
        record(
            "ACTIVITY_TASK_COMPLETED",
            scheduledEventId=scheduled,
            startedEventId=started,
            result=payloads(result),
        )
        done = task()
    record(
        "WORKFLOW_EXECUTION_COMPLETED",
        workflowTaskCompletedEventId=done,
        result=payloads(*results[:1]),
    )
    return WorkflowHistory.from_json("workflow", {"events": events})


def payloads(*values: int) -> dict[str, object]:
    """Values in Temporal's JSON: the bytes in base64."""
    encoding = {"encoding": "anNvbi9wbGFpbg=="}
    return {"payloads": [{"metadata": encoding, "data": base64(value)} for value in values]}


def base64(value: int) -> str:
    return b64encode(str(value).encode()).decode()


def replayer(runner: WorkflowRunner | None = None) -> Replayer:
    return Replayer(
        workflows=_workflows.ALL,
        workflow_runner=runner or SandboxedWorkflowRunner(),
        plugins=[CosIdWorkerPlugin(aiocosid.connect("memory://"))],
    )


async def test_an_activity_takes_an_id_of_the_default_provider(namespace: str) -> None:
    async with aiocosid.connect("memory://", namespace=namespace) as ids:
        await ids.segment_chain("order")
        with aiocosid.use_provider(ids):
            environment = ActivityEnvironment()
            assert [await environment.run(_workflows.new_order_id) for _ in range(2)] == [1, 2]


async def test_a_workflow_replays_with_the_id_of_its_activity() -> None:
    await replayer().replay_workflow(history(_workflows.TakesIdInActivity, 42))


async def refusal(workflow: type, runner: WorkflowRunner) -> str:
    """What fails the task of a workflow, in a worker whose generator has ids in hand."""
    async with aiocosid.connect("memory://", namespace="shop") as ids:
        _workflows.opened[:] = [await ids.segment_chain("order")]
        with aiocosid.use_provider(ids):
            result = await replayer(runner).replay_workflow(
                history(workflow), raise_on_replay_failure=False
            )
    return str(result.replay_failure)


@pytest.mark.parametrize("runner", [SandboxedWorkflowRunner(), UnsandboxedWorkflowRunner()])
@pytest.mark.parametrize("workflow", _workflows.REFUSED)
async def test_a_workflow_gets_no_id(workflow: type, runner: WorkflowRunner) -> None:
    assert REFUSED in await refusal(workflow, runner)


async def test_a_workflow_gets_no_ids_of_a_generator_that_is_open() -> None:
    assert REFUSED in await refusal(_workflows.TakesOpened, UnsandboxedWorkflowRunner())
