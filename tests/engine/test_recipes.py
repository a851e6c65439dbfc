"""The recipes for several nodes are jobs that the gateway takes, and use only variables that their pods have. Their script for
several processes per pod numbers, ends and stops them as the page says.
"""

import os
import re
import signal
import subprocess
from contextlib import contextmanager, suppress
from time import sleep
from uuid import UUID

import pytest

from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.rendering import Devices, Identity, render_job
from tests.recipes import PAGE, RECIPES, SCRIPTS, recipe_with

WHOSE = Identity("main", UUID(int=1), "acme/research", UUID(int=2), UUID(int=3), 1, "0" * 32)
BY_KUBERNETES = {"JOB_COMPLETION_INDEX"}
VARIABLE = re.compile(r"\$\(?\(?([A-Z][A-Z_]+)")
SHELLS_OWN = {"PER_POD"}
RANKS = "/opt/ranks.sh"


def used(text):
    return set(VARIABLE.findall(text)) | set(re.findall(r"\b(?:SWITCHYARD|JOB)_[A-Z_]+\b", text))


def rendered(recipe):
    stored = spec_json(read_spec({name: value for name, value in recipe.items() if name != "tenant"}, Rules()))
    for position in range(len(stored["pod_sets"])):
        (container,) = render_job(stored, position, WHOSE, Devices())["spec"]["template"]["spec"]["containers"]
        yield container


def test_there_is_one_for_each_way_to_train():
    assert len(RECIPES) == 7
    assert [title in PAGE for title in ("torchrun", "DeepSpeed", "MPI", "JAX", "Ray")] == [True] * 5
    assert SCRIPTS.keys() == {"/opt/mpi.sh", RANKS}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["name"])
def test_a_recipe_uses_only_variables_that_its_pods_have(recipe):
    for container in rendered(recipe):
        known = {variable["name"] for variable in container["env"]} | BY_KUBERNETES
        assert used(" ".join(container["command"] + container.get("args", []))) <= known


@pytest.mark.parametrize("path", SCRIPTS)
def test_a_script_uses_only_variables_that_its_pods_have(path):
    (container,) = rendered(recipe_with(path))
    known = {variable["name"] for variable in container["env"]}
    assert used(SCRIPTS[path]) <= known
    assert known >= SHELLS_OWN


@contextmanager
def pod(node, program, *, pods=2, per_pod=3):
    """The script as the first process of a pod, which ends with it."""
    variables = {"NODE_RANK": node, "WORLD_SIZE": pods, "PER_POD": per_pod}
    with subprocess.Popen(
        ["bash", "-c", SCRIPTS[RANKS], RANKS, "sh", "-c", program],
        env={"PATH": os.environ["PATH"]} | {name: str(value) for name, value in variables.items()},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            yield running
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def test_the_processes_of_all_pods_are_numbered_pod_by_pod():
    says = "echo $RANK $WORLD_SIZE $LOCAL_RANK"
    with pod(0, says) as first, pod(1, says) as second:
        assert sorted(first.stdout) == ["0 6 0\n", "1 6 1\n", "2 6 2\n"]
        assert sorted(second.stdout) == ["3 6 0\n", "4 6 1\n", "5 6 2\n"]
    assert (first.returncode, second.returncode) == (0, 0)


@pytest.mark.parametrize("others", ["exit 0", "exec sleep 60"])
@pytest.mark.parametrize("pause", [0, 0.3])
@pytest.mark.parametrize("failing", range(3))
def test_the_first_process_that_fails_ends_its_pod_with_its_exit_code(failing, pause, others):
    with pod(0, f"[ $LOCAL_RANK = {failing} ] && sleep {pause} && exit 41; {others}") as running:
        assert running.wait(timeout=30) == 41


def test_a_pod_that_is_stopped_lets_each_process_save_its_work():
    saves = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    with pod(1, saves) as running:
        assert [running.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
        running.terminate()
        assert running.stdout.read() == "saved\n" * 3
        assert running.wait(timeout=30) == 128 + signal.SIGTERM


def test_a_pod_that_is_stopped_while_it_starts_leaves_no_process_behind():
    """Its output ends when the last of its processes has ended."""
    for moment in range(40):
        with pod(1, "exec sleep 60") as running:
            sleep(moment / 4000)
            running.terminate()
            assert running.communicate(timeout=20)[0] == ""
            assert running.returncode in {128 + signal.SIGTERM, -signal.SIGTERM}
