"""A Django project on SQLite and PostgreSQL: its own tests, its migrations, and its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import httpx
import pytest

from tests.docs._blocks import ROOT
from tests.servers import HOST, free_port, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.stress, pytest.mark.timeout(180)]

SOURCE = Path(__file__).with_name("_django_project")
OLD = "django.db.models.BigAutoField"

SPAWNED = """
import multiprocessing, sys
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    import manage
    sys.argv[0] = "manage.py"
    manage.execute_from_command_line(sys.argv)
"""

# Django takes a second to import: one process does so, and forks one for each command.
FORKING = """
import json, os, sys
import django.contrib.admin, django.core.management, django.db.backends.sqlite3.base
import django.db.backends.postgresql.base, django.db.migrations.writer, django.http
import aiocosid.integrations.django, aiocosid.stores.postgres, aiocosid.stores.sqlite, aiocosid.sync

for line in sys.stdin:
    folder, environment, argv, out = json.loads(line)
    if (child := os.fork()) == 0:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment, DJANGO_SETTINGS_MODULE="shop.settings")
        for stream in (1, 2):
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        sys.path.insert(0, folder)
        django.core.management.execute_from_command_line(["manage.py", *argv])
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def django() -> Iterator[subprocess.Popen[str]]:
    """A process that has imported Django."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    with subprocess.Popen(
        (sys.executable, "-c", FORKING),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


class Project:
    """A copy of the project's folder, and the environment of its commands."""

    def __init__(self, folder: Path, django: subprocess.Popen[str], **environment: str) -> None:
        self.django = django
        self.folder = copytree(SOURCE, folder, ignore=ignore_patterns("__pycache__"))
        programs = Path(sys.executable).parent
        self.environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "error",
            "IDS_URL": "sqlite:///ids.db",
            "AIOCOSID_STORE": "sqlite:///ids.db",  # of the command line
            **environment,
        }

    def run(self, *command: str, text: str | None = None, **environment: str) -> str:
        """Run a command to its end, and return what it printed."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def manage(self, *command: str, **environment: str) -> str:
        """Run a command of ``manage.py``."""
        out = self.folder / "out"
        out.write_text("")
        asked = (str(self.folder), self.environment | environment, command, str(out))
        assert self.django.stdin is not None
        assert self.django.stdout is not None
        print(json.dumps(asked), file=self.django.stdin, flush=True)
        code = self.django.stdout.readline()
        assert code == "0\n", f"{code}{out.read_text()}"
        return out.read_text()

    def shell(self, code: str, **environment: str) -> Any:
        """Run code among the project's models, and return the JSON that it printed."""
        code = f"import json\nfrom shop.models import *\n{code}"
        return json.loads(self.manage("shell", "-v", "0", "-c", code, **environment))


@pytest.fixture(params=["sqlite", "postgres"])
def project(
    request: pytest.FixtureRequest, tmp_path: Path, django: subprocess.Popen[str]
) -> Project:
    """The project on a database of its own."""
    if request.param == "sqlite":
        return Project(tmp_path / "project", django)
    url = request.getfixturevalue("postgres_database")
    return Project(tmp_path / "project", django, DATABASE_URL=url)


def test_its_own_tests_pass_in_two_processes(project: Project) -> None:
    """Rows, bulk, relations, fixtures, admin, API and views of both kinds."""
    project.manage("makemigrations", "shop")
    said = project.run("python", "manage.py", "test", "--parallel", "2")
    assert "\nOK" in said
    assert "0 silenced" in said


def test_its_own_tests_pass_in_spawned_processes(
    tmp_path: Path, django: subprocess.Popen[str]
) -> None:
    project = Project(tmp_path / "project", django)
    (project.folder / "spawned.py").write_text(SPAWNED)
    project.manage("makemigrations", "shop")
    assert "\nOK" in project.run("python", "spawned.py", "test", "--parallel", "2")


def test_migrations_are_made_once(project: Project) -> None:
    project.manage("makemigrations", "shop")
    assert "No changes" in project.manage("makemigrations", "--check")
    project.manage("migrate")
    assert "No changes" in project.manage("makemigrations", "--check")
    written = (project.folder / "shop" / "migrations" / "0001_initial.py").read_text()
    assert "aiocosid.integrations.django.CosIdField(auto_created=True" in written
    assert "_fields" not in written
    made = project.shell("print(json.dumps([Order.objects.create().pk for _ in range(3)]))")
    assert made == [1, 2, 3]


IDS_MIGRATION = """
from aiocosid.integrations.django import CreateIdTables
from django.db import migrations

class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [CreateIdTables()]
"""
IDS_TABLES = """
from django.db import connection
print(json.dumps([each for each in connection.introspection.table_names() if "cosid" in each]))
"""


def test_a_migration_creates_the_tables_of_ids(project: Project) -> None:
    """They are no model's, so Django proposes nothing; to reverse it keeps them."""
    is_file = "DATABASE_URL" not in project.environment
    ours = [] if is_file else ["aiocosid_cell", "aiocosid_series", "cosid", "cosid_machine"]
    project.manage("makemigrations", "shop")
    (project.folder / "shop" / "migrations" / "0002_ids.py").write_text(IDS_MIGRATION)
    assert ("CREATE TABLE" in project.manage("sqlmigrate", "shop", "0002")) is not is_file
    project.manage("migrate")
    assert "No changes" in project.manage("makemigrations", "--check")
    assert project.shell(IDS_TABLES) == ours
    where = (
        {} if is_file else {"IDS_URL": project.environment["DATABASE_URL"] + "?durability=ignore"}
    )
    made = "print(json.dumps(Order.objects.create().pk))"
    assert project.shell(made.replace("Order", "Event"), **where) > 1  # a machine id is leased
    first = project.shell(made, **where)
    project.manage("migrate", "shop", "0001")
    assert project.shell(IDS_TABLES) == ours
    project.manage("migrate")
    assert project.shell(made, **where) > first
    project.manage("squashmigrations", "--no-input", "shop", "0002")
    [path] = (project.folder / "shop" / "migrations").glob("*squashed*.py")
    assert "  aiocosid.integrations.django.CreateIdTables(" in path.read_text()


GAPLESS = """
from aiocosid.errors import CosIdError
from aiocosid.integrations.django import gapless, gapless_batch
from django.db import transaction
found = []
with transaction.atomic():
    found.append(gapless("invoice", prefix="INV-").text)
    try:
        with transaction.atomic():
            found += [each.number for each in gapless_batch("invoice", 3)]
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    found.append(gapless("invoice", group_by=None).number)
for name in ("invoice", "recept"):
    try:
        with transaction.atomic() if name == "recept" else open("/dev/null"):
            gapless(name)
    except CosIdError as error:
        found.append(type(error).__name__)
with transaction.atomic():
    transaction.set_rollback(True)
    try:
        gapless("invoice")
    except CosIdError as error:
        found.append(error.reason)
print(json.dumps(found))
"""


def test_gapless_numbers_inside_atomic(project: Project) -> None:
    """An inner block that fails gives its numbers back; outside, or once it is broken, none."""
    url = project.environment.get("DATABASE_URL", "sqlite:///app.db")
    for command in (["init"], ["series", "open", "invoice"]):
        project.run("aiocosid", *command, "--store", url)
    assert project.shell(GAPLESS) == [
        *("INV-000001", 2, 3, 4, 2),
        *("UnsuitableTransactionError", "SeriesNotOpenError"),
        "an earlier error has broken the transaction, so it can only be rolled back",
    ]


CONFLICT = """
import threading
from aiocosid.errors import TransactionConflictError
from aiocosid.integrations.django import gapless
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
taken, done = threading.Event(), threading.Event()
def other():
    with transaction.atomic():
        gapless("invoice")
        taken.set()
        done.wait(30)
    connection.close()
thread = threading.Thread(target=other)
thread.start()
taken.wait(30)
found = []
with transaction.atomic():
    connection.cursor().execute("SET LOCAL lock_timeout = '100ms'")
    for statement in (lambda: gapless("invoice"), Tag.objects.first):
        try:
            statement()
        except (TransactionConflictError, TransactionManagementError) as error:
            found.append(type(error).__name__)
done.set()
thread.join()
with transaction.atomic():
    found.append(gapless("invoice").number)
print(json.dumps(found))
"""


def test_after_a_conflict_atomic_only_rolls_back(project: Project) -> None:
    """Whatever the block does then: on MySQL it would be in another transaction."""
    url = project.environment.get("DATABASE_URL")
    if url is None:
        pytest.skip("SQLite's conflicts are before the block")
    for command in (["init"], ["series", "open", "invoice"]):
        project.run("aiocosid", *command, "--store", url)
    found = project.shell(CONFLICT)
    assert found == ["TransactionConflictError", "TransactionManagementError", 2]


ROWS = """
tag = Tag.objects.create(name="t")
for title in "abc":
    order = Order.objects.create(title=title)
order.tags.add(tag)
Item.objects.create(order=order, number=0)
GiftOrder.objects.create(title="gift", card="x")
top = Order.objects.create(title="deleted")
print(json.dumps(top.pk))
top.delete()
"""

SEEN = """
rows = [list(each.objects.order_by("pk").values_list()) for each in (Tag, Order, Item, GiftOrder)]
print(json.dumps([*rows, list(Order.tags.through.objects.values_list())]))
"""


def test_a_project_moves_from_django_s_own_keys(project: Project) -> None:
    """Its rows are kept, no id repeats, not even a deleted row's; and it may go back."""
    project.manage("makemigrations", "shop", AUTO_FIELD=OLD)
    project.manage("migrate", AUTO_FIELD=OLD)
    deleted = project.shell(ROWS, AUTO_FIELD=OLD)
    before = project.shell(SEEN)
    project.manage("makemigrations", "shop")
    floors = project.manage("aiocosid_floors")
    assert floors == (f"aiocosid set-floor __share__ --namespace shop --above {deleted} --create\n")
    project.run("sh", "-e", text=floors)
    project.manage("migrate")
    assert "No changes" in project.manage("makemigrations", "--check")
    assert project.shell(SEEN) == before
    again = "print(json.dumps([m.objects.create().pk for m in (Order, Tag, GiftOrder)]))"
    first, *others = project.shell(again)
    assert first > deleted
    assert others == [first + 1, first + 2]
    project.manage("migrate", "shop", "0001")
    assert project.shell(SEEN)[1][:3] == before[1][:3]
    project.manage("migrate", "shop")


def test_floors_of_rows_alone(project: Project) -> None:
    """After the migration the databases' own counters are gone; Snowflakes count nothing."""
    project.manage("makemigrations", "shop")
    project.manage("migrate")
    assert project.manage("aiocosid_floors") == ""
    project.shell("Tag(pk=70).save(); Order(pk=7000).save(); Event(pk=9).save(); print(1)")
    floors = project.manage("aiocosid_floors")
    assert floors == "aiocosid set-floor __share__ --namespace shop --above 7000 --create\n"


def test_a_fixture_s_rows_are_loaded_as_they_were(project: Project) -> None:
    project.manage("makemigrations", "shop")
    project.manage("migrate")
    project.shell(ROWS)
    before = project.shell(SEEN)
    (project.folder / "rows.json").write_text(project.manage("dumpdata", "shop"))
    project.manage("flush", "--no-input")
    project.manage("loaddata", "rows.json")
    assert project.shell(SEEN) == before


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(("shop.wsgi:application", "--threads", "4"), id="wsgi"),
        pytest.param(("shop.asgi:application", "--worker-class", "asgi"), id="asgi"),
    ],
)
def test_workers_of_gunicorn_share_no_id(project: Project, program: tuple[str, ...]) -> None:
    """With --preload: what the settings made before the fork opens in each worker anew."""
    project.manage("makemigrations", "shop")
    project.manage("migrate")
    base = f"http://{HOST}:{(port := free_port())}"
    command = ("gunicorn", "--preload", "--workers", "2", "--bind", f"{HOST}:{port}", *program)
    with (project.folder / "log").open("w") as log:
        server = subprocess.Popen(
            ("python", "-m", *command),
            cwd=project.folder,
            env=project.environment,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: answers(server, base), "gunicorn answers", deadline=30)
            found: list[dict[str, int]] = []
            with (
                httpx.Client(headers={"Connection": "close"}, timeout=30) as client,
                ThreadPoolExecutor(4) as pool,
            ):
                for _ in range(20):
                    found += [each.json() for each in pool.map(client.get, [f"{base}/create"] * 20)]
                    if len({each["pid"] for each in found}) == 2:
                        break
            server.send_signal(signal.SIGTERM)
            assert server.wait(20) == 0
        finally:
            server.kill()
            server.wait()
    said = (project.folder / "log").read_text()
    assert not any(word in said for word in ("Traceback", "Error", "Warning")), said
    assert len({each["pid"] for each in found}) == 2
    assert len({each["id"] for each in found}) == len(found)


def answers(server: subprocess.Popen[bytes], base: str) -> bool:
    assert server.poll() is None
    try:
        return httpx.get(base).status_code == 404
    except httpx.TransportError:
        return False
