"""What pages and API say of the fleet's GPUs at one time: they agree with each other and with a count made here."""

import json
import re
from collections import Counter
from datetime import timedelta
from html import unescape
from random import Random

import pytest

from clusters.queries.pages import fleet_view
from foundation.clock import now
from tenancy.queries import actor_for
from tests.builders import bearer, bind, make_cluster, make_flavor, make_node, make_user
from tests.laws import seeds

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew")]
WHOLE, SLICES = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
STANDINGS = (
    ("open", {}),
    ("open", {"health": "degraded"}),
    ("closed", {"wish": "cordoned"}),
    ("closed", {"wish": "draining"}),
    ("unseen", {"health": "unreachable", "silent_since": now()}),
    ("unseen", {"last_seen_at": now() - timedelta(hours=1), "observed_at": now() - timedelta(hours=1)}),
    ("unseen", {"reasons": [{"code": "too_large", "message": "It has too many nodes."}]}),
    ("unseen", {"health": "auth_failed", "silent_since": now(), "wish": "cordoned"}),
)
NODES = (
    (True, {}),
    (True, {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}),
    (False, {"is_ready": False}),
    (False, {"is_schedulable": False}),
    (False, {"taints": [{"key": "team", "value": "other", "effect": "NoSchedule"}]}),
)


def make_fleet(chance: Random) -> tuple[Counter[str], Counter[str]]:
    """Random clusters, nodes and pods of others on them; what a person would count of them: whole GPUs, and slices."""
    counted = {WHOLE: Counter[str](), SLICES: Counter[str]()}
    for number in range(chance.randint(1, 6)):
        kind, fields = chance.choice(STANDINGS)
        cluster = make_cluster(name=f"c{number}", **({"last_seen_at": now(), "observed_at": now()} | fields))
        make_flavor(cluster)
        make_flavor(cluster, "slices", sharing="mig:1g.10gb", resource_name=SLICES)
        for _ in range(chance.randint(0, 5)):
            takes_pods, standing = chance.choice(NODES)
            flavor, resource, units = chance.choice((("h100", WHOLE, 8), ("h100", WHOLE, 1), ("slices", SLICES, 56)))
            used = chance.randint(0, units)
            make_node(
                cluster,
                devices=[{"flavor": flavor, "units": units}],
                used_devices={resource: used},
                foreign_devices={resource: used},
                **standing,
            )
            idle = "unseen" if kind == "unseen" else "free" if kind == "open" and takes_pods else "out_of_service"
            counted[resource].update({"total": units, "used": used, idle: units - used})
    return counted[WHOLE], counted[SLICES]


def words_of(page: bytes) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.decode())).split())


@pytest.mark.parametrize("seed", seeds(range(12), quick=3))
def test_overview_fleet_capacity_and_api_count_alike(client, seed):
    gpus, slices = make_fleet(Random(seed))
    user = make_user()
    bind(user, "acme", "admin")
    fleet = fleet_view(actor_for(user))
    for count, mine in ((fleet.gpus, gpus), (fleet.slices, slices)):
        assert (count.total, count.others, count.ours) == (mine["total"], mine["used"], 0)
        assert (count.free, count.out_of_service, count.unseen) == (
            mine["free"],
            mine["out_of_service"],
            mine["unseen"],
        )

    flavors = [
        flavor
        for cluster in client.get("/api/v1/clusters", headers=bearer(user)).json()["items"]
        for flavor in cluster["flavors"]
    ]
    for sharing, mine in (("whole", gpus), ("mig:1g.10gb", slices)):
        told = [flavor for flavor in flavors if flavor["sharing"] == sharing]
        for name in ("total", "free", "out_of_service", "unseen"):
            assert sum(flavor[name] for flavor in told) == mine[name], name
        assert sum(flavor["used"] + flavor["used_by_others"] for flavor in told) == mine["used"]

    shape = {"tenant": "acme", "pod_sets": [{"count": 1, "cpu": "1m", "memory": "1Mi", "gpu": {"count": 1}}]}
    room = client.get("/api/v1/capacity", {"shape": json.dumps(shape)}, headers=bearer(user)).json()
    assert room["count"] == gpus["free"]

    client.force_login(user)
    assert f"{gpus['used']} of {gpus['total']} {gpus['free']} free now" in words_of(client.get("/").content)
    shown = words_of(client.get("/clusters/").content)
    assert f"{gpus['used']} of {gpus['total']} GPUs in use" in shown
    assert f"; {gpus['free']} free" in shown
    assert (f"{slices['total']} GPU slices" in shown) == bool(slices["total"])


def test_a_cluster_that_is_not_observed_never_looks_ready(client):
    make_cluster(name="gone", last_seen_at=now() - timedelta(hours=1), observed_at=now() - timedelta(hours=1))
    user = make_user()
    bind(user, "acme")
    client.force_login(user)
    for page in ("/", "/clusters/"):
        content = client.get(page).content.decode()
        assert "state-green" not in content, page
        assert "stale, 60 min" in content
