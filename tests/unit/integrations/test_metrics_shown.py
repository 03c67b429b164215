"""The page of metrics, the dashboard and the alerts name what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from aiocosid.integrations.metrics import MEASURED, READ, Metric
from aiocosid.server._meters import SERVED

DOCS: Final = Path(__file__).parents[3] / "docs"
METRICS: Final = (*MEASURED, *READ, *SERVED)
LABELS: Final = {label for metric in METRICS for label in metric.labels}


def cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


def shown(metric: Metric) -> set[str]:
    """The names of a metric's series."""
    name = metric.prometheus_name
    return (
        {f"{name}_{end}" for end in ("bucket", "count", "sum")}
        if (metric.kind == "histogram")
        else {name}
    )


def test_the_page_has_each_metric_as_it_is() -> None:
    page = (DOCS / "reference" / "metrics.md").read_text()
    rows = [cells(line) for line in page.splitlines() if line.startswith("| `aiocosid.")]
    labels = {row[1]: row for row in map(cells, page.splitlines()) if len(row) == 4}
    short = {attribute: row[0] for attribute, row in labels.items()}
    assert [row[:6] for row in rows] == [
        [
            metric.name,
            metric.prometheus_name,
            metric.kind,
            metric.unit,
            ", ".join(short[attribute] for attribute in metric.attributes),
            metric.description,
        ]
        for metric in METRICS
    ]
    assert {labels[a][2] for metric in METRICS for a in metric.attributes} == LABELS


def test_names_follow_the_customs() -> None:
    """Dots and base units in OpenTelemetry; ``_total`` and ``_seconds`` in Prometheus."""
    assert len({metric.prometheus_name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"aiocosid(\.[a-z_]+)+", metric.name)
        assert metric.unit in {"s", ""} or re.fullmatch(r"\{[a-z_]+\}", metric.unit)
        assert metric.prometheus_name.endswith("_total") == (metric.kind == "counter")
        assert ("_seconds" in metric.prometheus_name) == (metric.unit == "s")


def names_in(expression: str) -> tuple[set[str], set[str]]:
    """The series and the labels of ours that a PromQL expression names."""
    words = set(re.findall(r"\b(?:aiocosid_\w+|error_type)\b", expression))
    return words - LABELS, words & LABELS


def labels_of(series: str) -> set[str]:
    (metric,) = [metric for metric in METRICS if series in shown(metric)]
    return {*metric.labels, "le"}


def check(expression: str, legend: str = "") -> None:
    """Only series that there are, with labels that they have."""
    series, labels = names_in(expression)
    assert series, expression
    for each in series:
        assert labels <= labels_of(each), expression
    for label in re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", legend):
        assert label == "instance" or all(label in labels_of(each) for each in series), legend


def test_the_dashboard_shows_what_there_is() -> None:
    dashboard: dict[str, Any] = json.loads((DOCS / "grafana" / "aiocosid.json").read_text())
    assert (dashboard["uid"], dashboard["title"]) == ("aiocosid", "aiocosid")
    assert dashboard["schemaVersion"] >= 36  # Grafana 9
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    said = ""
    for panel in panels:
        at = panel["gridPos"]
        area = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not area & taken, panel["title"]
        assert max(x for x, _ in area) < 24
        taken |= area
        targets = panel.get("targets", [])
        assert bool(targets) == (panel["type"] != "row"), panel["title"]
        assert len({target["refId"] for target in targets}) == len(targets)
        for target in targets:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            check(target["expr"], target["legendFormat"])
            used = set(re.findall(r"\$([a-z]+)", target["expr"]))
            assert used <= variables, target["expr"]
            said += target["expr"]
    missing = [m.name for m in METRICS if not shown(m) & names_in(said)[0]]
    assert missing == []


def test_the_alerts_watch_what_there_is() -> None:
    """The pages name each of them."""
    text = (DOCS / "grafana" / "aiocosid-alerts.yml").read_text()
    yaml = pytest.importorskip("ruamel.yaml")  # not among the oldest releases
    (group,) = yaml.YAML(typ="safe").load(text)["groups"]
    names = {rule["alert"] for rule in group["rules"]}
    assert len(names) == len(group["rules"]) == 7
    for page in ("observe.md", "operate.md"):
        assert names <= set(re.findall(r"`(\w+)`", (DOCS / "howto" / page).read_text())), page
    for rule in group["rules"]:
        check(rule["expr"], rule["annotations"]["summary"])
