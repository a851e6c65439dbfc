"""Placement policies over HTTP, at submission, in rounds; and the database as their last judge."""

import pytest

from federation.models import Attempt, Job, PlacementPolicy
from federation.operations import put_policy, run_scheduling_cycle
from tenancy.models import AuditEntry
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_spec, make_tenant
from tests.builders import make_user as new_user
from tests.rooms.federation.test_constraints import attack

pytestmark = pytest.mark.django_db
GPU = {"gpu": {"count": 8}}


@pytest.fixture
def team():
    for name, region in (("north", "eu-1"), ("south", "us-1")):
        cluster = make_cluster("acme", name, region=region)
        make_flavor(cluster)
        make_node(cluster)
    return make_tenant("acme/team")


def person(role, path="acme/team"):
    user = new_user()
    bind(user, path, role)
    return user


def test_a_manager_sets_reads_and_removes_a_policy_with_an_audit_entry_each(call, team):
    manager, path = person("manager"), f"/tenants/{team.id}/policy"
    assert call(manager, "get", path)[1]["policy"] is None
    said = {"default_strategy": "pack", "regions": ["eu-*"], "weights": {"pack": {"price": "0.5"}}}
    status, shown = call(manager, "put", path, said)
    assert status == 200, shown
    assert (shown["policy"]["regions"], shown["policy"]["weights"]) == (["eu-*"], said["weights"])
    assert shown["effective"]["default_strategy"] == "pack"
    assert shown["effective"]["weights"]["pack"] == {
        "price": "0.5", "free": "0", "cluster_free": "0.25", "stranding": "1",
    }  # fmt: skip
    assert call(manager, "put", path, {"clusters": ["north"]})[1]["policy"]["weights"] == {}
    assert call(manager, "delete", path) == (204, None)
    assert call(manager, "delete", path)[0] == 404
    trail = AuditEntry.objects.filter(object_kind="policy").order_by("id")
    assert [entry.action for entry in trail] == ["policy.put", "policy.put", "policy.remove"]
    assert trail[1].detail["before"]["regions"] == ["eu-*"]
    assert trail[1].detail["after"]["clusters"] == ["north"]


def test_only_those_who_manage_the_tenant_set_its_policy_and_who_sees_it_sees_what_is_above(call, team):
    admin, submitter, below = person("admin", "acme"), person("submitter"), person("manager")
    root = team.parent
    assert call(admin, "put", f"/tenants/{root.id}/policy", {"strategies": ["cheapest"]})[0] == 200
    assert call(submitter, "put", f"/tenants/{team.id}/policy", {})[1]["code"] == "permission_denied"
    assert call(below, "put", f"/tenants/{root.id}/policy", {})[0] == 404
    _, shown = call(submitter, "get", f"/tenants/{team.id}/policy")
    assert [(one["tenant"], one["strategies"]) for one in shown["above"]] == [("acme", ["cheapest"])]
    assert shown["effective"]["strategies"] == ["cheapest"]
    stranger = person("admin", "globex")
    assert call(stranger, "get", f"/tenants/{team.id}/policy")[0] == 404
    assert not AuditEntry.objects.filter(action="policy.put").exclude(tenant_id=root.id).exists()


def test_submission_takes_the_default_and_refuses_what_is_not_allowed(call, team):
    put_policy(actor_for(person("manager")), team.id, {"default_strategy": "pack", "strategies": ["pack", "spread"]})
    user, job = person("submitter"), {"tenant": "acme/team", **make_spec()}
    assert call(user, "post", "/jobs", job)[1]["spec"]["strategy"] == "pack"
    assert call(user, "post", "/jobs", {**job, "strategy": "spread"})[1]["spec"]["strategy"] == "spread"
    for path in ("/jobs", "/quotes"):
        status, refused = call(user, "post", path, {**job, "strategy": "cheapest"})
        assert (status, refused["errors"]) == (
            422,
            [
                {
                    "field": "strategy",
                    "code": "not_allowed",
                    "detail": "the policy of acme/team allows only pack, spread",
                }
            ],
        )
    _, bulk = call(user, "post", "/jobs/bulk", {"jobs": [job, {**job, "strategy": "cheapest"}]})
    assert [item["status"] for item in bulk["items"]] == [201, 422]
    assert Job.objects.order_by("-id")[0].spec["strategy"] == "pack"


def test_a_job_that_policies_keep_from_every_cluster_is_refused_with_their_names(call, team):
    put_policy(actor_for(person("manager")), team.id, {"clusters": ["west"]})
    status, refused = call(person("submitter"), "post", "/jobs", {"tenant": "acme/team", **make_spec(pod=GPU)})
    assert (status, refused["code"]) == (422, "never_fits")
    assert {(error["field"], error["code"]) for error in refused["errors"]} == {
        ("clusters.north", "excluded_by_policy"),
        ("clusters.south", "excluded_by_policy"),
    }
    assert "acme/team" in refused["errors"][0]["detail"]


@pytest.mark.usefixtures("quotes_look_anew")
def test_a_round_goes_by_the_policy_as_it_is_now(call, team):
    manager, user = actor_for(person("manager")), person("submitter")
    body = {"tenant": "acme/team", **make_spec(pod=GPU)}
    job = call(user, "post", "/jobs", body)[1]["id"]
    put_policy(manager, team.id, {"clusters": ["west"]})
    run_scheduling_cycle()
    _, why = call(user, "get", f"/jobs/{job}/explanation")
    assert why["reason"]["code"] == "held_by_policy"
    assert {one["code"] for one in why["clusters"]} == {"excluded_by_policy"}
    put_policy(manager, team.id, {"regions": ["us-*"]})
    _, quote = call(user, "post", "/quotes", body)
    assert [offer["cluster"] for offer in quote["offers"]] == []
    run_scheduling_cycle()
    assert Attempt.objects.get().cluster.name == "south"


def test_a_tenant_with_a_policy_is_not_removed_before_it(call, team):
    put_policy(actor_for(person("manager")), team.id, {"regions": ["eu-*"]})
    admin = person("admin", "acme")
    assert call(admin, "delete", f"/tenants/{team.id}")[1]["code"] == "tenant_not_empty"
    assert call(admin, "delete", f"/tenants/{team.id}/policy")[0] == 204
    assert call(admin, "delete", f"/tenants/{team.id}")[0] == 204


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("default_strategy = 'best'", "policy_default_strategy_is_known"),
        ("strategies = '{best}'", "policy_strategies_are_known"),
        ("default_strategy = 'pack', strategies = '{spread}'", "policy_default_strategy_is_allowed"),
        ("capacity_types = '{free}'", "policy_capacity_types_are_known"),
        ("clusters = array_fill('a'::text, ARRAY[101])", "policy_lists_are_short"),
        ("regions = array_fill('a'::text, ARRAY[101])", "policy_lists_are_short"),
        ("flavors = array_fill('a'::text, ARRAY[101])", "policy_lists_are_short"),
    ],
)
def test_the_database_refuses_a_policy_that_says_nonsense(team, change, constraint):
    PlacementPolicy.objects.create(tenant=team)
    assert constraint in attack(f"UPDATE federation_placementpolicy SET {change}")


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ("'best', 'price', 1", "weighed_strategy_is_known"),
        ("'pack', 'luck', 1", "weight_is_of_a_known_term_and_within_bounds"),
        ("'pack', 'price', -0.001", "weight_is_of_a_known_term_and_within_bounds"),
        ("'pack', 'price', 1000.001", "weight_is_of_a_known_term_and_within_bounds"),
        ("'pack', 'free', 11", "weight_is_of_a_known_term_and_within_bounds"),
        ("'pack', 'cluster_free', -11", "weight_is_of_a_known_term_and_within_bounds"),
        ("'pack', 'stranding', -1", "weight_is_of_a_known_term_and_within_bounds"),
        ("'pack', 'price', 'NaN'", "policy_weight_numbers_are_finite"),
        ("'pack', 'stranding', 1", "one_weight_per_strategy_and_term"),
    ],
)
def test_the_database_refuses_weights_beyond_their_bounds(team, values, constraint):
    PlacementPolicy.objects.create(tenant=team).weights.create(strategy="pack", term="stranding", value=1)
    told = attack(
        "INSERT INTO federation_policyweight (policy_id, strategy, term, value)"
        f" SELECT policy_id, {values} FROM federation_policyweight"
    )
    assert constraint in told


def test_the_page_sets_shows_and_removes_a_policy(client, team):
    manager, page = person("manager"), f"/tenants/{team.id}/policy/"
    client.force_login(manager)
    assert b"does not have its own policy" not in client.get(page).content
    typed = {"default_strategy": "pack", "regions": "eu-*, us-*", "weights": "pack price=0.5\nspread free=-2"}
    assert client.post(page, typed).status_code == 302
    shown = client.get(page).content.decode()
    assert "pack price=0.5\nspread free=-2" in shown
    assert "eu-*, us-*" in shown
    refused = client.post(page, {"weights": "pack price=<b>"})
    assert refused.status_code == 422
    assert "pack price=&lt;b&gt;" in refused.content.decode()
    client.force_login(person("viewer"))
    assert "Save the policy" not in client.get(page).content.decode()
    assert client.post(page, typed).status_code == 403
    client.force_login(manager)
    assert client.post(f"{page}remove/").status_code == 302
    assert not PlacementPolicy.objects.exists()
