"""What a cluster refuses for minutes: a webhook hangs, or the gateway's credential lacks a right until somebody grants it again."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import CLUSTERS

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

HANG_SECONDS = (190.0, 320.0)
"""After three minutes, a creation that waits is given up. Both last into the healed world: nothing else is wrong there."""
LONGER = 4.0
LONGER_SECONDS = HANG_SECONDS[1] * (LONGER - 1)
LACK_SECONDS = (150.0, 300.0)
"""A refusal for a missing right is repeated for about two minutes."""
RIGHTS = ("services", "secrets", "pods")
"""To make the Services of gangs and the Secrets of pods, and to open gates."""


def hang(world: "World") -> None:
    """Requests that change something get no answer; the cluster says who it is and what time it has, and reports what happens."""
    name = CLUSTERS[world.faults.choose(CLUSTERS)]
    link, seconds = world.links[name], world.faults.between(*HANG_SECONDS)
    if world.faults.happens("hangs_long"):
        seconds *= LONGER
    link.hangs = True
    world.tell(name, f"does not answer requests for changes for {seconds:.0f} s")

    def go_on() -> None:
        link.hangs = False
        world.tell(name, "answers again")

    world.scheduler.after(seconds, go_on)


def withdraw_right(world: "World") -> None:
    """The gateway's credential lacks a right."""
    name, right = CLUSTERS[world.faults.choose(CLUSTERS)], RIGHTS[world.faults.choose(RIGHTS)]
    link, seconds = world.links[name], world.faults.between(*LACK_SECONDS)
    link.lacks.add(right)
    link.lacked.add(right)
    world.tell(name, f"grants no right to {right} for {seconds:.0f} s")

    def grant() -> None:
        link.lacks.discard(right)
        world.tell(name, f"grants the right to {right}")

    world.scheduler.after(seconds, grant)


@judging
def an_attempt_ends_for_a_right_only_where_it_lacked(world: "World") -> list[str]:
    """What is given up because the gateway may not make Services was on a cluster that did not let it."""
    return [
        f"attempt {attempt} was given up because {name} lets the gateway make no Services, and it did"
        for attempt, name in world.watch.rows(WITHOUT_SERVICES)
        if "services" not in world.links[name].lacked
    ]


WITHOUT_SERVICES = """
SELECT attempt.id, cluster.name FROM federation_attempt AS attempt JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
 WHERE attempt.end_reason = 'services_closed' ORDER BY 1
"""
EVENTS: dict[str, Callable[["World"], None]] = {"requests_hang": hang, "right_lacks": withdraw_right}
"""By the kind of fault."""
