"""The chart of the id service: Helm's own engine renders it, and Kubernetes' schemas read it.

What it starts is started here, too, without a cluster: with its variables, files and words.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from kubernetes_validate.utils import latest_version, validate
from ruamel.yaml import YAML
from starlette.routing import Route

import aiocosid
from aiocosid.server import App
from aiocosid.server._tokens import digest_of, new_token
from tests.servers import HOST, free_port, wait_until

from ._helm import Helm
from .test_deploy import CLOSING, DEPLOY, DOCKERFILE, IDS, documents

CHART: Final = DEPLOY / "helm" / "aiocosid"
VALUES: Final[dict[str, Any]] = YAML(typ="safe").load(CHART / "values.yaml")
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text())
ABOUT: Final[dict[str, Any]] = YAML(typ="safe").load(CHART / "Chart.yaml")
OLDEST: Final = ABOUT["kubeVersion"].removeprefix(">=").removesuffix("-0")
OWN: Final = "app.kubernetes.io/"  # labels by which pods are chosen

STORE: Final = {"podSelector": {"matchLabels": {"app": "postgres"}}}
CASES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "most": {
        "image": {"digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "registry"}],
        "receiptKey": {"existingSecret": "receipts"},
        "tls": {"existingSecret": "certificate"},
        "drain": 7.5,
        "gracefulTimeout": 90,
        "service": {"type": "LoadBalancer", "annotations": {"for.example/one": "yes"}},
        "serviceAccount": {"annotations": {"for.example/one": "yes"}},
        "podDisruptionBudget": {"maxUnavailable": "25%"},
        "networkPolicy": {"egress": [{"to": [STORE], "ports": [{"port": 5432}]}]},
        "podMonitor": {"enabled": True, "existingSecret": "scraper", "labels": {"team": "ids"}},
        "podAnnotations": {"for.example/one": "yes"},
        "podLabels": {"team": "ids"},
        "priorityClassName": "high",
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
    "least": {
        "fullnameOverride": "ids",
        "existingConfigMap": "settings",
        "serviceAccount": {"create": False},
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "topologySpread": [],
    },
}


@pytest.fixture(scope="module")
def helm() -> Iterator[Helm]:
    with Helm(CHART, f"v{OLDEST}") as started:
        yield started


Objects = Callable[[dict[str, Any]], dict[str, dict[str, Any]]]


@pytest.fixture
def objects(helm: Helm) -> Objects:
    """What Kubernetes gets for values, by its kind."""

    def of(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
        made = helm.make(values)
        assert made.refusal == ""
        texts = [text for name, text in made.texts.items() if name != "NOTES.txt"]
        found = [YAML(typ="safe").load(text) for text in texts if text.strip()]
        kinds = {each["kind"]: each for each in found}
        assert len(kinds) == len(found)
        return kinds

    return of


def pod_of(kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = kinds["Deployment"]["spec"]["template"]["spec"]
    return found


def environment_of(kinds: dict[str, dict[str, Any]]) -> dict[str, str]:
    (container,) = pod_of(kinds)["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


@pytest.fixture(params=CASES)
def kinds(request: pytest.FixtureRequest, objects: Objects) -> dict[str, dict[str, Any]]:
    return objects(CASES[request.param])


@pytest.mark.parametrize("case", CASES)
def test_helm_has_nothing_to_say(helm: Helm, case: str) -> None:
    """But that an icon were nice."""
    assert helm.make(CASES[case]).complaints == ["icon is recommended"]


@pytest.mark.parametrize("version", [OLDEST, latest_version()])
def test_kubernetes_reads_it(kinds: dict[str, dict[str, Any]], version: str) -> None:
    """All but the PodMonitor, which is the Prometheus operator's."""
    names = set()
    for kind, each in kinds.items():
        names.add(each["metadata"]["name"])
        if kind != "PodMonitor":
            validate(each, version, strict=True)
    assert names in ({"prod-aiocosid"}, {"ids"})


WRONG: Final[list[tuple[dict[str, Any], str]]] = [
    ({"replcas": 3}, "'replcas'"),
    ({"image": {"tagg": "1"}}, "'tagg'"),
    ({"image": {"digest": "sha256:12"}}, "/image/digest"),
    ({"store": {"existingSecret": ""}}, "/store/existingSecret"),
    ({"store": {"url": "postgresql://ids:secret@db/ids"}}, "'url'"),
    ({"drain": -1}, "/drain"),
    ({"gracefulTimeout": 0}, "/gracefulTimeout"),
    ({"settings": {"namespace": "shop"}}, "/settings"),
    ({"networkPolicy": {"from": []}}, "/networkPolicy/from"),
    ({"podMonitor": {"interval": "often"}}, "/podMonitor/interval"),
]


@pytest.mark.parametrize(("values", "place"), WRONG, ids=[place for _, place in WRONG])
def test_a_mistake_is_refused(helm: Helm, values: dict[str, Any], place: str) -> None:
    made = helm.make(values)
    assert made.texts == {}
    assert place in made.refusal


def test_a_chart_may_have_it_in_it(objects: Objects) -> None:
    """Helm then adds the other chart's `global`."""
    assert objects({"global": {"team": "ids"}}) == objects({})


def test_the_schema_knows_the_values_and_no_others() -> None:
    def compare(values: dict[str, Any], schema: dict[str, Any], place: str) -> None:
        schema = SCHEMA["definitions"].get(schema.get("$ref", "").rpartition("/")[2], schema)
        if "properties" not in schema:
            assert (
                schema.get("type") != "object"
                or place in {"resources", "affinity"}
                or ("additionalProperties" in schema)
            ), place
            return
        assert schema["additionalProperties"] is False, place
        assert schema["properties"].keys() - {"global"} == values.keys(), place
        for name, value in values.items():
            if isinstance(value, dict):
                compare(value, schema["properties"][name], name)

    compare(VALUES, SCHEMA, "")


def test_the_versions_are_the_package_s(objects: Objects) -> None:
    assert ABOUT["version"] == ABOUT["appVersion"] == aiocosid.__version__
    (container,) = pod_of(objects({}))["containers"]
    assert container["image"] == f"ghcr.io/aiocosid/aiocosid:{aiocosid.__version__}"
    assert f":{aiocosid.__version__} " in (CHART / "README.md").read_text()


@pytest.mark.parametrize("tag", ["", "1"])
def test_a_digest_comes_before_a_tag(objects: Objects, tag: str) -> None:
    digest = f"sha256:{'a' * 64}"
    (container,) = pod_of(objects({"image": {"digest": digest, "tag": tag}}))["containers"]
    assert container["image"] == f"ghcr.io/aiocosid/aiocosid@{digest}"


def test_the_settings_are_the_file(objects: Objects) -> None:
    assert VALUES["settings"] == IDS.read_text()
    assert objects({})["ConfigMap"]["data"] == {"ids.toml": VALUES["settings"]}


def test_other_settings_are_other_pods(objects: Objects) -> None:
    """They would run on with the old ones."""
    one, other = (
        objects(values)["Deployment"]["spec"]["template"]["metadata"]["annotations"]
        for values in ({}, {"settings": "namespace = 'other'\n"})
    )
    assert one.keys() == other.keys()
    assert one != other


def test_the_chart_and_the_manifest_are_one(objects: Objects) -> None:
    """In what does not follow from a value."""
    kinds = objects({})
    (manifest,) = (
        each for each in documents(DEPLOY / "kubernetes.yaml") if each["kind"] == "Deployment"
    )
    ours, theirs = kinds["Deployment"]["spec"], manifest["spec"]
    assert (ours["replicas"], ours["strategy"]) == (theirs["replicas"], theirs["strategy"])
    pod, other = ours["template"]["spec"], theirs["template"]["spec"]
    assert pod["securityContext"].items() >= other["securityContext"].items()
    same = "automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds"
    assert [pod[each] for each in same] == [other[each] for each in same]
    ((container,), (there,)) = pod["containers"], other["containers"]
    for each in ("args", "ports", "resources", "securityContext"):
        assert container[each] == there[each]
    for each in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[each] == there[each]


def test_nothing_is_more_than_a_restricted_pod_may(kinds: dict[str, dict[str, Any]]) -> None:
    """By the rules of the Pod Security Standards; the root of its files is read-only, too."""
    pod = pod_of(kinds)
    (container,) = pod["containers"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {kind for each in pod["volumes"] for kind in each} <= {"name", "configMap", "secret"}
    assert pod["automountServiceAccountToken"] is False
    (user,) = re.findall(r"^USER (\d+):\1$", DOCKERFILE.read_text(), re.MULTILINE)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(user),
        "runAsGroup": int(user),
        "fsGroup": int(user),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_names_fit(kinds: dict[str, dict[str, Any]]) -> None:
    """What chooses pods chooses these; ports, mounts and accounts are there."""
    template = kinds["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    chosen = kinds["Service"]["spec"]["selector"]
    assert chosen.items() <= template["metadata"]["labels"].items()
    assert all(name.startswith(OWN) for name in chosen)
    assert kinds["Deployment"]["spec"]["selector"]["matchLabels"] == chosen
    for kind, key in (
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
        ("PodMonitor", "selector"),
    ):
        assert kind not in kinds or kinds[kind]["spec"][key]["matchLabels"] == chosen
    for each in template["spec"].get("topologySpreadConstraints", ()):
        assert each["labelSelector"]["matchLabels"] == chosen
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    (port,) = kinds["Service"]["spec"]["ports"]
    assert ports[port["targetPort"]] == port["port"]
    assert environment_of(kinds)["AIOCOSID_SERVER__LISTEN"].endswith(f":{port['port']}")
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts.keys() == {each["name"] for each in template["spec"]["volumes"]}
    for value in environment_of(kinds).values():
        if value.startswith("/"):
            assert str(Path(value).parent) in mounts.values()
    account = template["spec"]["serviceAccountName"]
    owner = kinds.get("ServiceAccount", {"metadata": {"name": "default"}})
    assert account == owner["metadata"]["name"]


def test_the_paths_are_served(kinds: dict[str, dict[str, Any]]) -> None:
    """Those of the probes and the PodMonitor, with the server's own scheme."""
    provider = aiocosid.configure({"generators": {"order": {"kind": "counter"}}}, default=False)
    served = {each.path for each in App(provider)._app.routes if isinstance(each, Route)}
    (container,) = pod_of(kinds)["containers"]
    probes = [probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")]
    assert [probe["path"].rpartition("/")[2] for probe in probes] == ["ready", "ready", "live"]
    asked = [*probes]
    for each in kinds.get("PodMonitor", {"spec": {"podMetricsEndpoints": []}})["spec"][
        "podMetricsEndpoints"
    ]:
        asked.append({**each, "scheme": each.get("scheme", "http").upper()})
        assert each["authorization"]["credentials"] == {"name": "scraper", "key": "token"}
    has_tls = "AIOCOSID_SERVER__TLS_CERTIFICATE" in environment_of(kinds)
    for each in asked:
        assert each["path"] in served
        assert each["port"] == "ids"
        assert each.get("scheme", "HTTP") == ("HTTPS" if has_tls else "HTTP")


def test_there_is_time_to_end(kinds: dict[str, dict[str, Any]]) -> None:
    said = environment_of(kinds)
    seconds = [float(said[f"AIOCOSID_SERVER__{name}"]) for name in ("DRAIN", "GRACEFUL_TIMEOUT")]
    assert pod_of(kinds)["terminationGracePeriodSeconds"] > sum(seconds) + CLOSING


def test_the_policy_lets_in_and_out_what_is_said(objects: Objects) -> None:
    usual = objects({})["NetworkPolicy"]["spec"]
    assert usual["policyTypes"] == ["Ingress"]  # what it reaches is not limited
    assert usual["ingress"] == [
        {"from": [{"podSelector": {}}], "ports": [{"port": "ids", "protocol": "TCP"}]}
    ]
    limited = objects(CASES["most"])["NetworkPolicy"]["spec"]
    assert limited["policyTypes"] == ["Ingress", "Egress"]
    names, *rest = limited["egress"]
    assert {(each["port"], each["protocol"]) for each in names["ports"]} == {
        (53, "UDP"),
        (53, "TCP"),
    }
    assert rest == CASES["most"]["networkPolicy"]["egress"]


def test_the_notes_warn_of_the_example_s_token(helm: Helm) -> None:
    others = VALUES["settings"].replace("0" * 64, "1" * 64)
    warned, silent = (helm.make(each).texts["NOTES.txt"] for each in ({}, {"settings": others}))
    assert "gets 401" in warned
    assert "gets 401" not in silent
    assert "prod-aiocosid.ids:8688" in silent


def test_what_it_starts_hands_out_ids(objects: Objects, tmp_path: Path) -> None:
    """The image's entry with the chart's words, variables and files, in an environment of its own.

    The image's check then finds it healthy, and it ends in order.
    """
    token = new_token()
    settings = VALUES["settings"].replace(f"sha256:{'0' * 64}", digest_of(token))
    kinds = objects({"drain": 0, "settings": f"create = true\n{settings}"})
    address = f"{HOST}:{free_port()}"
    (container,) = pod_of(kinds)["containers"]
    folders = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    files = {
        folders["settings"]: kinds["ConfigMap"]["data"],
        folders["store"]: {"store": f"sqlite:///{tmp_path}/ids.db\n"},
    }
    for folder, inside in files.items():
        place = tmp_path / folder[1:]
        place.mkdir(parents=True)
        for name, text in inside.items():
            (place / name).write_text(text)

    def here(text: str) -> str:
        for folder in files:
            text = text.replace(folder, f"{tmp_path}{folder}")
        return text.replace("0.0.0.0:8688", address).replace("127.0.0.1:8688", address)

    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    assert json.loads(entry) == ["aiocosid"]
    variables = {name: here(text) for name, text in environment_of(kinds).items()}
    variables["PATH"] = os.environ["PATH"]
    command = [sys.executable, "-m", "aiocosid", *map(here, container["args"])]
    (check,) = re.findall(r"^ +CMD (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    probe = [sys.executable, *map(here, json.loads(check)[1:])]
    with ExitStack() as stack:
        process = subprocess.Popen(command, env=variables, cwd=Path(aiocosid.__file__).parents[1])
        stack.callback(process.wait)
        stack.callback(process.kill)

        def is_up() -> bool:
            assert process.poll() is None
            try:
                return httpx.get(f"http://{address}/health/ready").is_success
            except httpx.HTTPError:
                return False

        wait_until(is_up, "it is ready", deadline=60)
        subprocess.run(probe, check=True)
        url = f"http://{address}/v1/ids/order"
        answer = httpx.post(url, headers={"Authorization": f"Bearer {token}"})
        assert answer.raise_for_status().json()["ids"] == ["1"]
        assert httpx.post(url).status_code == httpx.codes.UNAUTHORIZED
        process.terminate()
        assert process.wait(60) == 0
