"""Jobs whose failure rules read the ends of logs, where a cluster does not return logs for a while."""

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from devtools.simulation.clusters.cluster import ENDING, EXIT_CODE, RUN_SECONDS
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import CLUSTERS

from .clients import Submission

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "logs_decide"
RULES: tuple[dict[str, Any], ...] = (
    {"name": "never", "when": {"log": ["no program writes this"]}, "then": "stop"},
    {"name": "log", "when": {"log": ["ended with exit code 3"]}, "then": "again", "retries": 1},
)
MORE_MEMORY: dict[str, Any] = {
    "name": "memory", "when": {"seen": ["out_of_memory"]}, "then": "more_memory", "memory": {"most": "1000Gi", "factor": "8"},
}  # fmt: skip
"""More than any node has."""
HIDDEN_SECONDS = (20.0, 120.0)
"""The gateway waits a minute for logs; then the other rules decide."""


def let_decide(seed: int, rates: Mapping[str, float], submissions: list[Submission]) -> None:
    """Most jobs of such a world fail soon, and have rules that read logs; some need more memory than there is."""
    if KIND not in rates:
        return
    chance = random.Random(f"{seed}/logs")
    for one in submissions:
        labels = {RUN_SECONDS: str(chance.choice((1, 5, 20)))}
        drawn = chance.random()
        if drawn < 0.6:
            one.body |= {"failure_rules": [dict(rule) for rule in RULES]}
            labels |= {EXIT_CODE: "3", ENDING: ""}
        elif drawn < 0.8:
            one.body |= {"failure_rules": [dict(MORE_MEMORY)]}
            labels |= {EXIT_CODE: "137", ENDING: "OOMKilled"}
        one.body["labels"] = {name: value for name, value in (one.body["labels"] | labels).items() if value}


def begin(world: "World") -> None:
    """Each cluster hides its logs for a while, in half of these worlds."""
    chance = random.Random(f"{world.seed}/logs/hidden")
    if KIND not in world.faults.rates or chance.random() < 0.5:
        return
    for name in CLUSTERS:
        seconds = chance.uniform(*HIDDEN_SECONDS)
        world.links[name].hides_logs = True
        world.tell(name, f"returns no logs for {seconds:.0f} s")
        world.scheduler.after(seconds, lambda name=name: show(world, name))  # type: ignore[misc]


def show(world: "World", name: str) -> None:
    """The cluster returns logs again."""
    world.links[name].hides_logs = False


@judging
def a_log_decides_only_as_it_says(world: "World") -> list[str]:
    """A rule that reads a log decided only where the program wrote that: its pod ended with the exit code 3. A rule for what no program
    writes never decided.
    """
    wrote = {run.attempt_id for cluster in _all(world) for run in cluster.runs if run.code == 3}
    return [
        f"the rule {rule} decided on attempt {attempt}, whose log does not say that"
        for attempt, rule in world.watch.rows(DECIDED)
        if rule.endswith("never") or attempt not in wrote
    ]


def _all(world: "World") -> list[Any]:
    return [*world.clusters.values(), *world.removed]


DECIDED = """
SELECT diagnosis.attempt_id::text, diagnosis.rule
  FROM federation_diagnosis AS diagnosis JOIN federation_attempt AS attempt ON attempt.id = diagnosis.attempt_id
  JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE diagnosis.judged_at IS NOT NULL AND job.spec -> 'failure_rules' -> 0 ->> 'name' = 'never'
   AND diagnosis.rule ~ '(never|log)$' ORDER BY 1
"""
BEGIN: dict[str, Callable[["World"], None]] = {KIND: begin}
"""By the kind of fault: what is so from the beginning of a world on."""
