"""The openb benchmark's two models of a fleet, the engine's and the plain one, agree on every pod of a small trace."""

import random

import numpy as np
import pytest

from benchmarks.members import FgdScheduler, bestfit_scheduler
from benchmarks.openb import Run, baseline, run_of, switchyard
from benchmarks.traces import TraceError, arrivals, read_nodes, read_pods


@pytest.fixture
def trace(tmp_path):
    """Nodes of three GPU models, one with more devices than eight and one without any, and pods that ask for parts, wholes and models."""
    chance = random.Random(1)
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    rows = [("T4", 2), ("V100", 8), ("G2", 10), ("", 0), ("T4", 4), ("V100", 4)] * 3
    nodes.write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n"
        + "".join(f"n{n},{8000 * max(gpus, 2)},262144,{gpus},{model}\n" for n, (model, gpus) in enumerate(rows))
    )
    asked = [(1, 100), (1, 470), (1, 810), (1, 1000), (1, 1000), (2, 1000), (8, 1000), (0, 0)]
    lines = []
    for n in range(150):
        gpus, milli = chance.choice(asked)
        models = chance.choice(("", "", "T4", "V100|G2")) if gpus else ""
        lines.append(f"p{n:03d},{chance.choice((1000, 4000, 9000))},4096,{gpus},{milli},{models}\n")
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(lines))
    return read_nodes(nodes), read_pods(pods)


@pytest.mark.parametrize(("clusters", "hints"), [(1, False), (3, False), (3, True), (9, False)])
def test_the_engine_places_exactly_what_fits_and_foresees_where_it_lands(trace, clusters, hints):
    nodes, pods = trace
    tally = switchyard(run_of(nodes, pods, clusters, 42), hints=hints)
    assert 70 < tally.allocated(130) <= 100


@pytest.mark.parametrize("scheduler", [lambda fleet, _: bestfit_scheduler(fleet), lambda fleet, _: FgdScheduler(fleet)])
def test_baselines_run_on_any_trace(trace, scheduler):
    nodes, pods = trace
    run: Run = run_of(nodes, pods, 1, 42)
    assert 70 < baseline(scheduler)(run).allocated(130) <= 100


def test_a_trace_that_asks_for_too_much_is_thinned_and_one_that_asks_for_less_is_filled_up(trace):
    _, pods = trace
    asked = sum(pod.asked_milli for pod in pods)
    for capacity in (asked // 3, asked * 2):
        queue = arrivals(pods, capacity, 1.3, np.random.default_rng(1))
        most = 1.3 * capacity
        assert most - 8000 < sum(pod.asked_milli for pod in queue) <= most + 8000


def test_a_file_that_is_no_trace_is_told_by_its_column(tmp_path):
    wrong = tmp_path / "pods.csv"
    wrong.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,many,1,1,1\n")
    with pytest.raises(TraceError, match="line 2, column cpu_milli"):
        read_pods(wrong)
