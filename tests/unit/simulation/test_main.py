"""The command that repeats a run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import SCENARIOS, SimulationError, World
from tests.simulation.__main__ import main

ROOT = Path(__file__).parents[4]


async def goes_wrong(world: World) -> None:
    """Fails in every third world."""
    world.note("a", "draws", f"{world.rng.random()}")
    await world.sleep(1)
    if world.seed % 3 == 2:
        world.fail("the third")


def test_what_is_known_is_run_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segment_chain_cancelled", "--seeds", "3"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("3 worlds, ")
    assert said.out.endswith(" ids: nothing found\n")


def test_the_first_failure_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{__name__}:goes_wrong", "--first", "3", "--seeds", "9"]) == 1
    assert capsys.readouterr().err.startswith("seed 5: the third\n")


def test_all_scenarios_are_run_by_several_processes(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["all", "--seeds", "1", "--jobs", "2"]) == 0
    said = capfd.readouterr().out
    assert re.search(
        rf"^{len(SCENARIOS)} worlds, \d+ ids: nothing found; \d+ a second$", said, re.MULTILINE
    )


def test_a_seed_says_it_all_to_a_new_interpreter() -> None:
    """Although the scenario imports what it needs while it runs."""
    code = """if True:
        from tests.simulation import SCENARIOS, World
        print(*(World(3).run(SCENARIOS["segment_chain_http"]).digest for _ in range(2)))
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert len({*done.stdout.split()}) == 1, done.stdout + done.stderr


def test_the_printed_command_names_a_scenario_of_the_package() -> None:
    for name, scenario in SCENARIOS.items():
        assert World(1)._command(scenario).endswith(f"simulation {name} --seed 1")


def test_the_printed_command_repeats_the_run() -> None:
    with pytest.raises(SimulationError) as caught:
        World(8).run(goes_wrong)
    program, *arguments = shlex.split(caught.value.command)
    assert program == "python"
    again = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert (again.returncode, again.stderr) == (1, f"{caught.value}\n")


@pytest.mark.parametrize("name", ["nothing", "no.such:thing", "tests.simulation:no"])
def test_an_unknown_scenario_is_an_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name])
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err
