"""Usage under the paths that tenants have now: all of it is found once, whatever they were called and wherever they were then."""

from collections import defaultdict
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from billing.models import Price, UsageSegment
from billing.operations import record_lost_work, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.queries import usage_report
from billing.queries.recorded import GROUPS
from foundation.problems import NotFound
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_run, make_user
from tests.rooms.billing.ledgers import at, priced_cluster

pytestmark = pytest.mark.django_db
MONTH = (at(1), at(1, month=11))
SPANS = (MONTH, (at(3, 5), at(19, 7)), (at(4, 1), at(4, 23)))
"""Whole days, days with two parts, and a part alone."""


def used(cluster, path, start, hours, **more):
    """A run of that tenant, metered."""
    run = make_run(cluster, path, started_at=start, until_at=start + timedelta(hours=hours), **more)
    record_runs([run])
    return run


@pytest.fixture
def moved():
    """A team that ran at acme/one, moved below acme/two and ran there; another one that took its old path; one that was renamed."""
    north, east = priced_cluster(), priced_cluster("east", amount="1.7")
    lost = used(north, "acme/one", at(3, 20), 9, gpu_units=3)
    used(east, "acme/one", at(4, 2), 30)
    used(north, "acme/two", at(4, 4), 5)
    team = Tenant.objects.get(path="acme/one")
    change_tenant(SYSTEM, team.id, parent_id=Tenant.objects.get(path="acme/two").id)
    used(north, "acme/two/one", at(18, 22), 11)
    used(north, "acme/one", at(18, 3), 7)  # another tenant of the same path
    change_tenant(SYSTEM, Tenant.objects.get(path="acme/one").id, name="ten")
    used(east, "acme/ten", at(19, 1), 3)
    set_credit_policy(SYSTEM, NewCreditPolicy("acme", at(1, month=9).date(), ("node_lost",)))
    record_lost_work({lost.run_id: ("node_lost", at(3, 22))})
    price = Price.objects.get(rate__cluster=east)
    correct_price(SYSTEM, NewCorrection(price.id, Decimal("2.9"), "USD", at(4, 12), at(19, 2), "typo"))
    return team


def report_of(path, span, words=(), **more):
    """The report of all."""
    start, until = span
    return usage_report(SYSTEM, path, start, until, words, **more)


def by_hand(span):
    """{current path: GPU-milliseconds} by walking over all segments."""
    found = defaultdict(Fraction)
    for part in UsageSegment.objects.select_related("meter__tenant"):
        inside = min(part.period.upper, span[1]) - max(part.period.lower, span[0])
        if inside > timedelta():
            found[part.meter.tenant.path] += part.meter.gpu_units * Fraction(inside // timedelta(milliseconds=1))
    return dict(found)


@pytest.mark.parametrize("span", SPANS, ids=str)
def test_each_tenant_has_all_that_it_used_under_its_path_of_now(moved, span):
    report = report_of("acme", span, ["tenant"], as_is=True)
    assert {row.keys["tenant"]: row.gpu_milliseconds for row in report.rows} == by_hand(span)
    assert {row.keys["tenant"] for row in report.rows} <= {"acme/ten", "acme/two", "acme/two/one"}
    assert report.as_is


@pytest.mark.parametrize("span", SPANS, ids=str)
@pytest.mark.parametrize(
    "words", [(), ("tenant",), ("cluster", "day"), ("tenant", "user", "job"), tuple(GROUPS)], ids=str
)
def test_an_organisation_has_the_same_totals_both_ways_and_the_same_rows_without_paths(moved, span, words):
    was, now = (report_of("acme", span, words, as_is=as_is) for as_is in (False, True))
    assert now.totals == was.totals
    assert now.total.corrections
    assert (now.total.credits != 0) == (span[0] < at(4, 5))
    if "tenant" not in words:
        assert now.rows == was.rows
    sums = [sum(row.cost for row in report.rows) for report in (was, now)]
    assert sums == [was.total.cost] * 2


def test_adjoining_places_of_the_tree_add_up_and_each_is_what_its_parent_shows(moved):
    whole = {row.keys["tenant"]: row.cost for row in usage_report(SYSTEM, "", *MONTH, ["tenant"], as_is=True).rows}
    for path in ("acme/ten", "acme/two/one"):
        assert usage_report(SYSTEM, path, *MONTH, as_is=True).total.cost == whole[path]
    two = usage_report(SYSTEM, "acme/two", *MONTH, as_is=True).total.cost
    assert two == whole["acme/two"] + whole["acme/two/one"]


def test_a_former_path_is_none_of_now_and_who_sees_a_tenant_sees_its_past(moved):
    with pytest.raises(NotFound):
        usage_report(SYSTEM, "acme/one", *MONTH, as_is=True)
    assert usage_report(SYSTEM, "acme/one", *MONTH).total.cost
    new, old = make_user(), make_user()
    bind(new, "acme/two", "viewer")
    bind(old, "acme/ten", "viewer")
    seen = usage_report(actor_for(new), "", *MONTH, ["tenant"], as_is=True)
    assert {row.keys["tenant"] for row in seen.rows} == {"acme/two", "acme/two/one"}
    for path in ("acme", "acme/two", "acme/two/one", "nowhere"):
        with pytest.raises(NotFound):
            usage_report(actor_for(old), path, *MONTH, as_is=True)


def test_energy_follows_as_well(moved):
    was, now = (
        usage_report(SYSTEM, "acme", *MONTH, ["tenant"], with_carbon=True, as_is=as_is) for as_is in (False, True)
    )
    assert now.total.carbon == was.total.carbon
    assert now.total.carbon.unrated_gpu_hours
    assert [row.carbon.unrated_gpu_hours for row in now.rows] == [row.gpu_hours for row in now.rows]


@pytest.mark.parametrize(("paths", "expected"), [(None, "as_was"), ("as_was", "as_was"), ("as_is", "as_is")])
def test_the_api_says_which_paths_it_shows(call, moved, paths, expected):
    admin = make_user()
    bind(admin, "acme", "admin")
    query = "" if paths is None else f"&paths={paths}"
    status, shown = call(admin, "get", f"/usage?month=2026-10&group_by=tenant{query}")
    assert (status, shown["paths"]) == (200, expected)
    assert ("acme/one" in {item["tenant"] for item in shown["items"]}) == (expected == "as_was")


@pytest.mark.parametrize("paths", ["", "now", "as_is,as_was", "AS_IS"])
def test_other_paths_are_refused(call, moved, paths):
    admin = make_user()
    bind(admin, "acme", "admin")
    status, problem = call(admin, "get", f"/usage?paths={paths}")
    assert (status, [error["code"] for error in problem["errors"]]) == (422, ["bad_format"])


def test_the_page_shows_it_and_its_file_has_the_same(client, moved):
    admin = make_user()
    bind(admin, "acme", "admin")
    client.force_login(admin)
    page = client.get("/usage/?month=2026-10&paths=as_is").content.decode()
    assert "acme/two/one" in page.replace("<wbr>", "")
    assert "where its tenant is now" in page
    assert "paths=as_is" in page
    link = next(part for part in page.split('"') if "format=csv" in part).replace("&amp;", "&")
    lines = client.get(link).content.decode().splitlines()
    assert {line.split(",")[0] for line in lines[1:]} == {"acme/ten", "acme/two", "acme/two/one"}
