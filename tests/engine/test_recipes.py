"""The recipes for several nodes are jobs that the gateway takes, and use only variables that their pods have."""

import json
import re
from pathlib import Path
from uuid import UUID

import pytest

from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.rendering import Devices, Identity, render_job

PAGE = (Path(__file__).resolve().parents[2] / "docs/howto/train-on-several-nodes.md").read_text()
RECIPES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
SCRIPT = re.search(r"```bash\n(.*?)```", PAGE, re.DOTALL)[1]
WHOSE = Identity("main", UUID(int=1), "acme/research", UUID(int=2), UUID(int=3), 1, "0" * 32)
BY_KUBERNETES = {"JOB_COMPLETION_INDEX"}
VARIABLE = re.compile(r"\$\(?\(?([A-Z][A-Z_]+)")
SHELLS_OWN = {"PER_POD"}


def used(text):
    return set(VARIABLE.findall(text)) | set(re.findall(r"\b(?:SWITCHYARD|JOB)_[A-Z_]+\b", text))


def rendered(recipe):
    stored = spec_json(read_spec({name: value for name, value in recipe.items() if name != "tenant"}, Rules()))
    for position in range(len(stored["pod_sets"])):
        (container,) = render_job(stored, position, WHOSE, Devices())["spec"]["template"]["spec"]["containers"]
        yield container


def test_there_is_one_for_each_way_to_train():
    assert len(RECIPES) == 6
    assert [title in PAGE for title in ("torchrun", "DeepSpeed", "MPI", "JAX", "Ray")] == [True] * 5


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["name"])
def test_a_recipe_uses_only_variables_that_its_pods_have(recipe):
    for container in rendered(recipe):
        known = {variable["name"] for variable in container["env"]} | BY_KUBERNETES
        assert used(" ".join(container["command"] + container.get("args", []))) <= known


def test_the_script_uses_only_variables_that_its_pods_have():
    (container,) = (one for recipe in RECIPES for one in rendered(recipe) if "/opt/mpi.sh" in one["command"])
    known = {variable["name"] for variable in container["env"]}
    assert used(SCRIPT) <= known
    assert known >= SHELLS_OWN
