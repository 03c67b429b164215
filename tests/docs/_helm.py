"""Helm's engine, in a process of its own: it has threads of Go, and other tests fork.

    python -m tests.docs._helm FOLDER

reads values as JSON, a line each, and answers each by a line: the texts that the chart in the
folder becomes with them, what Helm's linter says, and why it refuses them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.servers import ServerMissingError

from ._blocks import ROOT

__all__ = ("Helm", "Made")

PACKAGE: Final = "helm-python-sdk"


class Made(NamedTuple):
    """What Helm makes of a chart and values.

    Attributes:
        texts: by the names of the templates.
        complaints: the linter's, for the oldest Kubernetes of the chart.
        refusal: why there are no texts.
    """

    texts: dict[str, str]
    complaints: list[str]
    refusal: str


@dataclass
class Helm:
    """A chart that Helm renders, as the release "prod" in the namespace "ids"."""

    folder: Path
    kubernetes: str
    _made: dict[str, Made] = field(default_factory=dict)

    def __enter__(self) -> Self:
        if find_spec("helm_python") is None:
            raise ServerMissingError(PACKAGE, remedy=f"pip install {PACKAGE}")
        command = sys.executable, "-m", __name__, self.folder, self.kubernetes
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def make(self, values: dict[str, Any]) -> Made:
        asked = json.dumps(values)
        if asked not in self._made:
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.write(f"{asked}\n")
            self._process.stdin.flush()
            self._made[asked] = Made(*json.loads(self._process.stdout.readline()))
        return self._made[asked]


def main(folder: str, kubernetes: str) -> None:
    from helm_python import Chart, HelmValuesError, lint

    with Chart.load(folder) as chart:
        for line in sys.stdin:
            values = json.loads(line)
            said = lint(folder, values, strict=True, kube_version=kubernetes)
            complaints = [*said["errors"], *(each["error"] for each in said["messages"])]
            texts, refusal = {}, ""
            try:
                texts = chart.render(values, name="prod", namespace="ids")
            except HelmValuesError as error:
                refusal = str(error)
            texts = {Path(name).name: text for name, text in texts.items()}
            sys.stdout.write(f"{json.dumps(Made(texts, complaints, refusal))}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
