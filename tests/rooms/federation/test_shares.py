"""Turns by fair share through the whole gateway: weights, the cycle, quotes, the API and the page."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction

from federation.models import Attempt, Job
from federation.operations import run_scheduling_cycle
from federation.operations.waiting_reasons import explain
from federation.queries.quotes import quote_of
from federation.queries.shares import load_fair_share
from federation.queries.snapshot import load_snapshot
from federation.queries.went_first import reason_text
from foundation import clock
from foundation.caches import reset_all
from foundation.problems import Invalid
from placement.answers.recording import snapshot_of, snapshot_text
from placement.cycle.share_reasons import ANOTHER_TENANT
from placement.values.decisions import Wait
from placement.values.reason_codes import ReasonCode
from quotas.models import PastHalfLife, PastUse
from quotas.operations import end_holds, take_holds
from quotas.queries import discrepancies
from tenancy.models import AuditEntry, Tenant
from tenancy.operations import set_weight
from tenancy.queries import SYSTEM
from tests.builders import (
    actor_for,
    bearer,
    bind,
    hold_request,
    make_cluster,
    make_flavor,
    make_node,
    make_spec,
    make_tenant,
    make_user,
    submit,
)

pytestmark = pytest.mark.django_db
GREEDY, MODEST = "acme/greedy", "acme/modest"
ONE_GPU = {"gpu": {"count": 1}}


@pytest.fixture
def user():
    found = make_user()
    bind(found, "acme")
    for path in (GREEDY, MODEST):
        make_tenant(path)
    return found


@pytest.fixture
def node():
    cluster = make_cluster()
    make_flavor(cluster)
    return make_node(cluster)


def waiting(user, path, count=1, **changes):
    spec = {**make_spec(**({"pod": ONE_GPU} | changes)), "tenant": path}
    return [submit(actor_for(user), {**spec, "name": f"j{n}"}) for n in range(count)]


def put(client, user, **body):
    return client.put("/api/v1/shares", body, content_type="application/json", headers=bearer(user))


def lines(client, user, **query):
    answer = client.get("/api/v1/shares", query, headers=bearer(user))
    assert answer.status_code == 200, answer.content
    return {one["tenant"]: one for one in answer.json()["items"]}


def started():
    return set(Attempt.objects.values_list("job_id", flat=True))


def test_one_job_of_a_tenant_is_not_behind_many_of_another(user, node, quotes_look_anew):
    many = waiting(user, GREEDY, 16, priority_class="high")
    quoted = quote_of(actor_for(user), {**make_spec(pod=ONE_GPU), "tenant": MODEST}).quote
    assert quoted.offers
    assert quoted.ahead == 1
    [one] = waiting(user, MODEST)
    run_scheduling_cycle()
    assert one.id in started()
    assert len(started()) == 8 < len(many)
    assert discrepancies() == ()


def test_without_fair_share_jobs_go_by_priority_whoever_submitted_them(user, node, settings, client):
    settings.FAIR_SHARE = False
    waiting(user, GREEDY, 16, priority_class="high")
    [one] = waiting(user, MODEST)
    assert load_fair_share() is None
    assert {one["turn"] for one in lines(client, user).values()} == {None}
    run_scheduling_cycle()
    assert one.id not in started()


def test_a_job_whose_room_went_to_another_is_told_the_shares_of_both(user, node, client):
    set_weight(SYSTEM, MODEST, Decimal(3))
    waiting(user, GREEDY, 12)
    waiting(user, MODEST, 12)
    run_scheduling_cycle()
    waits = Job.objects.filter(state="queued", reason_code="waiting_for_share")
    texts = dict(waits.values_list("tenant__path", "reason_message"))
    shown = lines(client, user)
    greedy, modest = shown[GREEDY], shown[MODEST]
    assert greedy["waiting"] > modest["waiting"]
    # the text has the shares at the turn; the API those of now, when both hold what they got
    assert f"that of {GREEDY} is {greedy['share'] * 100:.2f} %" in texts[GREEDY]
    assert "its room went to another tenant, whose share of the fleet was" in texts[GREEDY]
    assert modest["share"] == pytest.approx(modest["held"] / 3, abs=1e-4)
    assert greedy["share"] == pytest.approx(greedy["held"] + greedy["used"], abs=1e-6)
    explained = client.get(f"/api/v1/jobs/{waits.first().id}/explanation", headers=bearer(user)).json()
    assert explained["reason"]["code"] == "waiting_for_share"


def test_the_tenant_that_went_first_is_named_only_to_users_who_may_see_it(user, node, client):
    set_weight(SYSTEM, MODEST, Decimal(3))
    waiting(user, GREEDY, 12)
    waiting(user, MODEST, 12)
    run_scheduling_cycle()
    job = Job.objects.filter(tenant__path=GREEDY, reason_code="waiting_for_share").first()
    stored = Job.objects.values_list("reason_message", "explanation")
    assert not [one for one in stored.filter(tenant__path=GREEDY) if MODEST in str(one)]
    leaf = make_user("leaf@acme.example")
    bind(leaf, GREEDY, "manager")
    for reader, named in (user, MODEST), (leaf, "another tenant"):
        words = f"its room went to {named}, whose share of the fleet was"
        texts = [
            client.get(f"/api/v1/jobs{path}", headers=bearer(reader)).content.decode()
            for path in (f"/{job.id}", f"/{job.id}/explanation", "?limit=100")
        ]
        client.force_login(reader)
        texts += [client.get(path).content.decode() for path in (f"/jobs/{job.id}/", "/jobs/?state=queued", "/")]
        assert [words in text for text in texts[:3]] == [True] * 3
        assert all(MODEST not in text for text in texts) == (reader is leaf)
        client.logout()


def test_another_tenant_with_an_equal_share_replaces_the_one_that_went_first(user, node):
    [one] = waiting(user, GREEDY)
    for path in MODEST, "acme/third":
        make_tenant(path)
        Job.objects.filter(id=one.id).update(reason_at=clock.now() - timedelta(minutes=1))
        wait = Wait(one.id, ReasonCode.WAITING_FOR_SHARE, f"its room went to {ANOTHER_TENANT}", went_first=path)
        explain([wait])
        one.refresh_from_db()
        assert reason_text(actor_for(user), one) == f"its room went to {path}"


def test_past_use_puts_a_tenant_behind(user, node, client):
    asked = hold_request(GREEDY, {"gpu": 8000})
    take_holds([asked])
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE quotas_hold SET created_at = created_at - interval '1 day'")
        cursor.execute("SET LOCAL session_replication_role = origin")
    end_holds({asked.holder_id: "posted"})
    [first], [second] = waiting(user, GREEDY), waiting(user, MODEST)
    shown = lines(client, user)
    assert (shown[GREEDY]["turn"], shown[MODEST]["turn"]) == (2, 1)
    assert shown[GREEDY]["used"] == pytest.approx(4000 / 8000, rel=0.01)
    # the mean is a quarter; credit and debt are at most a quarter of the half that is fair
    assert [shown[path]["credit"] for path in (GREEDY, MODEST)] == pytest.approx([-0.125, 0.125])
    assert [shown[path]["share"] for path in (GREEDY, MODEST)] == pytest.approx([0.375, 0.125], rel=0.01)
    assert json.loads(snapshot_text(load_snapshot(clock.now(), 10)))["snapshot"]["fair_share"]["credit_cap"] == 0.25
    assert (shown["acme"]["turn"], shown["acme"]["waiting"], shown["acme"]["held"]) == (1, 2, 0)
    assert shown["acme"]["credit"] is None, "it would say what other organisations used"
    run_scheduling_cycle()
    assert list(Attempt.objects.order_by("id").values_list("job_id", flat=True)) == [second.id, first.id]


def test_the_half_life_of_the_setting_is_taken_over_by_a_round(user, settings):
    settings.FAIR_SHARE_HALF_LIFE_SECONDS = 600
    asked = hold_request(GREEDY, {"gpu": 8000})
    take_holds([asked])
    end_holds({asked.holder_id: "posted"})
    run_scheduling_cycle()
    assert PastHalfLife.objects.get().half_life_seconds == 600
    assert PastUse.objects.count() == 1
    assert discrepancies() == ()


def test_a_snapshot_with_shares_is_recorded_and_read_back(user, node):
    set_weight(SYSTEM, MODEST, Decimal("0.5"))
    waiting(user, MODEST)
    snapshot = load_snapshot(clock.now(), 10)
    assert snapshot_of(json.loads(snapshot_text(snapshot))).fair_share == snapshot.fair_share
    assert [(one.path, one.weight) for one in snapshot.fair_share.tenants] == [(MODEST, 0.5)]


def test_a_weight_is_set_from_above_and_audited(user, client):
    answer = put(client, user, tenant=MODEST, weight="2.5")
    assert (answer.status_code, answer.json()["weight"]) == (200, "2.5")
    assert Tenant.objects.get(path=MODEST).weight == Decimal("2.5")
    entry = AuditEntry.objects.filter(action="tenant.weight").get()
    assert entry.detail == {"weight": "2.5", "was": "1.00"}
    assert lines(client, user, tenant=MODEST).keys() == {MODEST}


def test_who_may_not_set_a_weight(user, client):
    assert put(client, user, tenant="acme", weight="2").status_code == 403  # an organisation's own admin
    manager = make_user()
    bind(manager, MODEST, "manager")
    assert put(client, manager, tenant=MODEST, weight="2").status_code == 403
    assert put(client, manager, tenant=GREEDY, weight="2").status_code == 404
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    assert put(client, viewer, tenant=MODEST, weight="2").status_code == 403
    operator = make_user()
    operator.is_staff = operator.is_superuser = True
    operator.save()
    assert put(client, operator, tenant="acme", weight="2").status_code == 200
    assert set(Tenant.objects.exclude(weight=1).values_list("path", flat=True)) == {"acme"}


@pytest.mark.parametrize(
    "weight", ["0", "-1", "0.001", "1000.01", "1e9", "NaN", "Infinity", "1.234", "x", "", "1E-99", "٣"]
)
def test_a_weight_that_is_none_is_refused(user, client, weight):
    answer = put(client, user, tenant=MODEST, weight=weight)
    if weight == "٣":  # digits of any script are digits
        assert answer.status_code == 200
        return
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "weight")
    with pytest.raises(Invalid):
        set_weight(SYSTEM, MODEST, Decimal("Infinity"))


@pytest.mark.parametrize("weight", ["0", "-1", "1000.01", "'NaN'"])
def test_the_database_refuses_such_a_weight_too(user, weight):
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE tenancy_tenant SET weight = {weight}")


def test_shares_of_others_are_not_shown(user, client, node):
    make_tenant("globex/lab")
    member = make_user()
    bind(member, MODEST, "viewer")
    assert lines(client, member).keys() == {MODEST}
    assert client.get("/api/v1/shares", {"tenant": GREEDY}, headers=bearer(member)).status_code == 404
    stranger = make_user()
    assert lines(client, stranger) == {}
    assert lines(client, user).keys() == {"acme", GREEDY, MODEST}


def test_shares_are_paged(user, client):
    first = client.get("/api/v1/shares", {"limit": 2}, headers=bearer(user)).json()
    second = client.get("/api/v1/shares", {"limit": 2, "cursor": first["next"]}, headers=bearer(user)).json()
    assert [one["tenant"] for one in first["items"] + second["items"]] == ["acme", GREEDY, MODEST]


def test_the_page_shows_the_tree_and_sets_a_weight(user, client, node, settings):
    waiting(user, MODEST)
    client.force_login(user)
    page = client.get("/shares/")
    assert page.status_code == 200
    text = page.content.decode()
    assert "acme/modest" in text
    assert "next" in text
    assert "?tenant=acme/modest" in text.replace("%2F", "/")
    form = client.get("/shares/set/?tenant=acme/modest")
    assert 'value="1"' in form.content.decode()
    saved = client.post("/shares/set/", {"tenant": MODEST, "weight": "4"})
    assert (saved.status_code, saved["Location"]) == (302, "/shares/")
    assert Tenant.objects.get(path=MODEST).weight == 4
    for weight, tenant, status in (("no", MODEST, 422), ("0", MODEST, 422), ("2", "", 422), ("2", "acme", 403)):
        assert client.post("/shares/set/", {"tenant": tenant, "weight": weight}).status_code == status
    settings.FAIR_SHARE = False
    assert "Fair share is off" in client.get("/shares/").content.decode()
    assert "No tenant here" in client.get("/shares/?tenant=nothing").content.decode()
    live = client.get("/shares/", headers={"HX-Request": "true"})
    assert live.content.decode().lstrip().startswith("<section")


def test_the_page_of_someone_without_a_tenant_says_so(client):
    client.force_login(make_user())
    assert "You have no tenant yet" in client.get("/shares/").content.decode()


def aged(node, hours):
    """The history says that the fleet has had the node for these hours."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # a span only ends otherwise
        cursor.execute(
            "UPDATE clusters_nodespan SET period = tstzrange(date_trunc('milliseconds', now()) - make_interval(secs => %s), NULL)"
            " WHERE offer_id IN (SELECT id FROM clusters_nodeoffer WHERE cluster_id = %s AND node = %s)",
            [hours * 3600, node.cluster_id, node.name],
        )
        cursor.execute("SET LOCAL session_replication_role = origin")


def grown(node, hours):
    """The fleet had its node for two days, and has had another one like it for these hours."""
    aged(node, 48)
    aged(make_node(node.cluster), hours)


@pytest.mark.parametrize("hours", [0, 6, 24, 48])
def test_what_the_fleet_had_is_the_mean_over_the_time_of_its_history(user, node, hours, settings):
    grown(node, hours)
    life, size = settings.FAIR_SHARE_HALF_LIFE_SECONDS / 3600, sum(one["units"] for one in node.devices) * 1000
    parts = [1 - 0.5 ** (since / life) for since in (48, hours)]
    (found,) = load_fair_share().past
    assert found.owner_path == node.cluster.owner.path
    assert found.amounts[0] == pytest.approx(size * sum(parts) / parts[0], rel=1e-6)
    assert found.amounts[1] == pytest.approx(node.cpu_millicores * sum(parts) / parts[0], rel=1e-6)


def test_a_fleet_that_doubled_does_not_halve_what_was_used_before(user, node, client):
    hold = hold_request(GREEDY, {"gpu": 8000})
    take_holds([hold])
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # a hold never changes otherwise
        cursor.execute("UPDATE quotas_hold SET created_at = now() - interval '48 hours'")
        cursor.execute("SET LOCAL session_replication_role = origin")
    with transaction.atomic():
        aged(node, 48)
        before = lines(client, user)[GREEDY]["used"]
        transaction.set_rollback(True)
    reset_all()  # a minute later
    grown(node, 0)
    assert lines(client, user)[GREEDY]["used"] == pytest.approx(before, rel=0.01)
    assert lines(client, user)[GREEDY]["held"] == pytest.approx(0.5)
