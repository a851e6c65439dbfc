import pytest

from foundation.ids import new_id
from foundation.problems import Invalid, NotFound
from quotas.models import Hold, HoldMovement, QuotaLimit
from quotas.operations import delete_limit, end_holds, put_limit, take_holds
from quotas.queries import discrepancies, refusal_for_good
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, NotAllowedHere, actor_for
from tests.builders import bind, hold_request, make_cluster, make_limit, make_tenant, make_user

pytestmark = pytest.mark.django_db


def held(limit):
    limit.refresh_from_db()
    return limit.held


def cap(limit):
    limit.refresh_from_db()
    return limit.cap


def test_a_hold_counts_at_every_limit_from_root_to_leaf():
    root, leaf = make_limit("acme", nominal="8"), make_limit("acme/research", nominal="4")
    elsewhere = make_limit("acme/sales", nominal="4")
    asked = hold_request("acme/research/vision", {"gpu": 3000})

    assert take_holds([asked]) == {asked.holder_id: None}
    assert (held(root), held(leaf), held(elsewhere)) == (3000, 3000, 0)
    assert discrepancies() == ()


def test_a_refusal_names_the_limit_that_stood_in_the_way_and_leaves_nothing_behind():
    root, leaf = make_limit("acme", nominal="8"), make_limit("acme/research", nominal="4")
    asked = hold_request("acme/research", {"gpu": 5000})

    refusal = take_holds([asked])[asked.holder_id]

    assert refusal.code == "quota_exceeded"
    assert (refusal.limit_id, refusal.tenant_path, refusal.resource) == (leaf.id, "acme/research", "gpu")
    assert (refusal.cap, refusal.held, refusal.asked) == (4000, 0, 5000)
    assert refusal.message == (
        "acme/research has a limit of 4 gpu: 0 held, 5 requested; it would fit if acme/research could borrow 1 more"
    )
    assert (held(root), held(leaf), Hold.objects.count(), HoldMovement.objects.count()) == (0, 0, 0, 0)


def test_earlier_requests_win_and_a_later_smaller_one_may_still_fit():
    limit = make_limit("acme", nominal="4")
    first, too_large, small = (hold_request("acme", {"gpu": amount}) for amount in (3000, 2000, 1000))

    outcomes = take_holds([first, too_large, small])

    assert [outcomes[asked.holder_id] is None for asked in (first, too_large, small)] == [True, False, True]
    assert held(limit) == 4000


def test_a_holder_gets_all_resources_or_none():
    gpu, memory = make_limit("acme", nominal="8"), make_limit("acme", "memory", "10Gi")
    asked = hold_request("acme", {"gpu": 1000, "memory": 20480})

    assert take_holds([asked])[asked.holder_id].resource == "memory"
    assert (held(gpu), held(memory)) == (0, 0)


def test_a_limit_on_named_clusters_counts_only_there():
    scoped = make_limit("acme", nominal="1", clusters=("south",))
    north, south, too_much = (hold_request("acme", cluster_name=name) for name in ("north", "south", "south"))

    outcomes = take_holds([north, south, too_much])

    assert [outcomes[asked.holder_id] is None for asked in (north, south, too_much)] == [True, True, False]
    assert held(scoped) == 1000


def test_a_tenant_without_limits_is_unlimited():
    asked = hold_request("acme", {"gpu": 10**9})
    assert take_holds([asked]) == {asked.holder_id: None}


def test_a_holder_cannot_hold_twice():
    limit = make_limit("acme")
    asked = hold_request("acme")
    take_holds([asked])

    assert take_holds([asked])[asked.holder_id].code == "already_held"
    end_holds({asked.holder_id: "posted"})
    assert take_holds([asked])[asked.holder_id].code == "already_held"
    assert held(limit) == 0


def test_a_request_with_an_outdated_path_is_refused():
    asked = hold_request("acme/research")
    tenant = make_tenant("acme/research")
    tenant.name = "science"
    tenant.save()

    assert take_holds([asked])[asked.holder_id].code == "tenant_moved"


def test_ending_gives_back_once_and_keeps_how_it_ended():
    limit = make_limit("acme")
    ran, never_ran = hold_request("acme"), hold_request("acme")
    take_holds([ran, never_ran])

    assert end_holds({ran.holder_id: "posted", never_ran.holder_id: "voided", new_id(): "voided"}) == 2
    assert end_holds({ran.holder_id: "voided", never_ran.holder_id: "posted"}) == 0
    states = dict(Hold.objects.values_list("holder_id", "state"))
    assert states == {ran.holder_id: "posted", never_ran.holder_id: "voided"}
    assert held(limit) == 0
    assert discrepancies() == ()


def test_a_limit_cut_below_use_takes_nothing_new_until_enough_has_ended():
    limit = make_limit("acme", nominal="4")
    running = [hold_request("acme") for _ in range(4)]
    take_holds(running)

    put_limit(SYSTEM, "acme", "gpu", nominal=2000)
    assert cap(limit) == 4000
    refused = hold_request("acme")
    for expected_cap, ended in zip((3000, 2000, 2000), running, strict=False):
        assert take_holds([refused])[refused.holder_id].code == "quota_exceeded"
        end_holds({ended.holder_id: "posted"})
        assert cap(limit) == expected_cap
    assert held(limit) == 1000
    assert take_holds([refused])[refused.holder_id] is None


def test_a_new_limit_counts_what_is_already_running():
    running = [hold_request("acme/research", {"gpu": 2000, "cpu": 500}) for _ in range(3)]
    elsewhere = hold_request("acme/research", {"gpu": 1000}, cluster_name="south")
    make_cluster(name="north")
    take_holds([*running, elsewhere])
    end_holds({running[0].holder_id: "posted"})

    limit, is_new = put_limit(SYSTEM, "acme", "gpu", nominal=3000, clusters=["north"])

    assert is_new
    assert (limit.held, limit.nominal, limit.cap) == (4000, 3000, 4000)
    assert discrepancies() == ()
    end_holds({running[1].holder_id: "posted", running[2].holder_id: "voided", elsewhere.holder_id: "posted"})
    assert (held(limit), cap(limit)) == (0, 3000)


def test_putting_again_replaces_the_amount_whatever_the_order_of_clusters():
    make_cluster(name="north")
    make_cluster(name="south")
    first, is_new = put_limit(SYSTEM, "acme", "cpu", nominal=1000, clusters=["south", "north"])
    again, is_new_again = put_limit(SYSTEM, "acme", "cpu", nominal=7000, clusters=["north", "south", "north"])

    assert (is_new, is_new_again) == (True, False)
    assert (again.id, again.nominal, again.cap) == (first.id, 7000, 7000)
    assert [entry.detail["was"] for entry in AuditEntry.objects.filter(action="quota.put").order_by("id")] == [
        None,
        "1",
    ]


def test_a_removed_limit_binds_no_more_but_still_counts_down():
    limit = make_limit("acme", nominal="1")
    asked, more = hold_request("acme"), hold_request("acme")
    take_holds([asked])

    delete_limit(SYSTEM, limit.id)
    assert take_holds([more])[more.holder_id] is None
    assert held(limit) == 1000
    end_holds({asked.holder_id: "posted"})
    assert held(limit) == 0
    with pytest.raises(NotFound):
        delete_limit(SYSTEM, limit.id)


def test_a_limit_put_again_after_removal_counts_all_that_is_pending():
    limit = make_limit("acme", nominal="5")
    asked = hold_request("acme")
    take_holds([asked])
    delete_limit(SYSTEM, limit.id)

    again, is_new = put_limit(SYSTEM, "acme", "gpu", nominal=5000)

    assert is_new
    assert again.id != limit.id
    assert again.held == 1000
    assert discrepancies() == ()


def test_an_unused_limit_is_removed_without_trace():
    limit = make_limit("acme")
    delete_limit(SYSTEM, limit.id)
    assert not QuotaLimit.objects.exists()


def test_a_limit_is_set_by_those_who_manage_quotas_above_it():
    lead, outsider = make_user(), make_user()
    bind(lead, "acme/research", "manager")
    make_tenant("acme/research/vision")

    assert put_limit(actor_for(lead), "acme/research/vision", "gpu", nominal=1000)[1]
    with pytest.raises(NotAllowedHere):
        put_limit(actor_for(lead), "acme/research", "gpu", nominal=1000)
    with pytest.raises(NotFound):
        put_limit(actor_for(outsider), "acme/research", "gpu", nominal=1000)
    head = make_user()
    bind(head, "acme", "manager")
    assert put_limit(actor_for(head), "acme", "gpu", nominal=1000)[1]


@pytest.mark.parametrize(
    ("resource", "nominal", "clusters", "field", "code"),
    [
        ("disk", 1, [], "resource", "unknown_resource"),
        ("gpu:", 1, [], "resource", "unknown_resource"),
        ("gpu", -1, [], "nominal", "out_of_range"),
        ("gpu", 10**16, [], "nominal", "out_of_range"),
        ("gpu", 1, ["atlantis"], "clusters", "unknown_cluster"),
        ("gpu", 1, [f"c{number}" for number in range(101)], "clusters", "out_of_range"),
    ],
)
def test_a_senseless_limit_is_refused_with_its_field(resource, nominal, clusters, field, code):
    make_tenant("acme")
    with pytest.raises(Invalid) as refused:
        put_limit(SYSTEM, "acme", resource, nominal=nominal, clusters=clusters)
    assert [(error.field, error.code) for error in refused.value.errors] == [(field, code)]


def test_what_fits_on_one_cluster_when_all_is_empty_is_not_refused_for_good():
    make_limit("acme", nominal="2", clusters=("south",))
    make_limit("acme", nominal="8")
    take_holds([hold_request("acme", {"gpu": 8000})])

    assert refusal_for_good("acme", [("south", {"gpu": 4000}), ("north", {"gpu": 4000})]) is None
    refusals = refusal_for_good("acme", [("south", {"gpu": 9000}), ("north", {"gpu": 9000})])
    assert [refusal.asked for refusal in refusals] == [9000, 9000]
    assert refusal_for_good("acme", []) is None
