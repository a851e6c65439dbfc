"""Commitments whose clusters, flavors and currencies change around them, and files that were written to do harm."""

from datetime import date
from decimal import Decimal

import pytest

from billing import locks
from billing.engine.commitment_file import NotCommitments, read_commitments
from billing.models import Commitment, CommitmentDay, CommitmentDueDay, CommitmentVersion, LedgerEntry, LedgerPeriod
from billing.operations import commitment_days, create_price, periods, record_runs
from billing.operations import commitments as operations
from billing.operations.commitments import apply_commitments, plan_commitments
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from billing.queries.commitment_report import commitment_report, preview_of
from billing.queries.sharing_report import sharing_report
from clusters.models import Flavor
from clusters.operations import remove_cluster
from foundation.problems import Invalid
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_cluster, make_flavor, make_run, make_tenant, make_user

from .committing import DAYS, HOURS, MONTH, balances, committed, file_of, split
from .ledgers import at, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
NOVEMBER = date(2026, 11, 1)
USAGE_ONLY = {"acme/one": 10, "cluster_pool": -10}


@pytest.fixture
def north():
    cluster = priced_cluster()
    record_runs([make_run(cluster, "acme/one", started_at=at(5), until_at=at(5, 4))])
    return cluster


def refusal(**changes):
    """The code of the refusal of a plan."""
    with pytest.raises(Invalid) as refused:
        plan_commitments(SYSTEM, "acme", file_of(changes))
    (error,) = refused.value.errors
    return error.field, error.code


def closed():
    """October, closed after all of it was posted and split."""
    periods.keep_ledger()
    period = LedgerPeriod.objects.get(month=MONTH)
    periods.begin_closing(SYSTEM, period.id)
    periods.keep_ledger()
    settle_pending_checks()
    period.refresh_from_db()
    assert period.state == "closed"
    return period


def test_a_commitment_can_be_changed_and_withdrawn_after_its_cluster_was_removed(north):
    committed()
    remove_cluster(SYSTEM, north.id)
    assert plan_commitments(SYSTEM, "acme", file_of({})).changes == ()
    assert [one.action for one in committed({"units": 4, "upfront": 2 * HOURS}).changes] == ["change"]
    assert balances()["acme/one"] == 2
    (change,) = committed({"units": 4, "upfront": 2 * HOURS, "withdrawn": "true"}).changes
    assert (change.action, change.after["clusters"]) == ("withdraw", ["north"])
    assert balances() == USAGE_ONLY
    assert discrepancies() == ()


def test_a_removed_cluster_takes_no_new_commitment(north):
    LedgerPeriod.objects.create(organisation=north.owner, month=MONTH)
    remove_cluster(SYSTEM, north.id)
    assert refusal() == ("commitments[0].clusters", "unknown_cluster")


def test_a_cluster_that_was_registered_again_is_a_change_that_the_plan_shows(north):
    committed()
    remove_cluster(SYSTEM, north.id)
    fresh = priced_cluster()
    (change,) = plan_commitments(SYSTEM, "acme", file_of({})).changes
    assert (change.before["clusters"], change.after["clusters"]) == ([str(north.id)], ["north"])
    committed({"clusters": f"[{north.id}, north]"})
    assert sorted(CommitmentVersion.objects.latest("id").clusters) == sorted([fresh.id, north.id])
    assert balances()["acme/one"] == 2
    committed()
    assert CommitmentVersion.objects.latest("id").clusters == [fresh.id]
    assert plan_commitments(SYSTEM, "acme", file_of({})).changes == ()
    assert balances()["acme/one"] == 10


def test_a_commitment_whose_flavor_is_gone_can_be_withdrawn():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster, "h100")
    committed()
    Flavor.objects.all().delete()
    assert plan_commitments(SYSTEM, "acme", file_of({})).changes == ()
    assert [one.action for one in committed({"withdrawn": "true"}).changes] == ["withdraw"]
    assert balances() == {}


@pytest.mark.parametrize("first", ["acme", "acme/research"])
def test_of_two_clusters_of_a_name_the_one_owned_highest_is_meant_and_a_later_one_changes_nothing(first):
    second = "acme/research" if first == "acme" else "acme"
    found = {}
    for number, owner in enumerate((first, second)):
        found[owner] = make_cluster(owner, "north")
        make_flavor(found[owner], "h100")
        if not number:
            committed()
    assert CommitmentVersion.objects.get().clusters == [found[first].id]
    (change,) = committed({"units": 3}).changes
    assert change.before["clusters"] == change.after["clusters"] == ["north"]
    assert CommitmentVersion.objects.latest("id").clusters == [found[first].id]
    committed({"units": 3}, {"name": "two"})
    assert CommitmentVersion.objects.get(commitment__name="two").clusters == [found["acme"].id]


def test_names_of_other_organisations_are_refused_as_if_there_were_none(north):
    LedgerPeriod.objects.create(organisation=north.owner, month=MONTH)
    foreign = make_cluster("other", "their-cluster")
    make_flavor(foreign, "their-flavor")
    texts = set()
    for name in ("their-cluster", "nowhere", str(foreign.id)):
        with pytest.raises(Invalid) as refused:
            plan_commitments(SYSTEM, "acme", file_of({"clusters": f"[{name}]"}))
        texts.add(refused.value.detail.replace(name, "X"))
    assert texts == {"there is no cluster X here"}
    assert refusal(flavor="their-flavor") == ("commitments[0].flavor", "unknown_flavor")


def test_commitments_and_prices_of_an_organisation_are_in_one_currency():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster, "h100")
    make_tenant("acme")
    with pytest.raises(Invalid) as refused:
        plan_commitments(SYSTEM, "acme", file_of({"start": "2027-01-01T00:00:00Z", "until": "2027-02-01T00:00:00Z"},
                                                 {"name": "two", "currency": "EUR", "start": "2027-01-01T00:00:00Z", "until": "2027-02-01T00:00:00Z"}))  # fmt: skip
    assert [(one.field, one.code) for one in refused.value.errors] == [("commitments[1].currency", "mixed_currencies")]
    committed()
    with pytest.raises(Invalid, match="commitments of acme are in USD"):
        create_price(SYSTEM, NewPrice("north", "h100", Decimal(2), currency="EUR"))
    committed({"withdrawn": "true"})
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(2), currency="EUR"))
    assert refusal() == ("commitments[0].currency", "mixed_currencies")
    assert plan_commitments(SYSTEM, "acme", file_of({"withdrawn": "true"})).changes == ()


@pytest.mark.parametrize(
    ("start", "until", "code"),
    [
        ("2027-01-01T00:00:00Z", "2047-01-01T01:00:00Z", "empty_period"),
        ("2027-01-01T00:00:00Z", "2047-12-31T23:00:00Z", "empty_period"),
        ("2080-02-29T00:00:00Z", "2100-02-28T01:00:00Z", "empty_period"),
        ("9999-12-01T00:00:00Z", "9999-12-31T00:00:00Z", "out_of_range"),
        ("9990-01-01T00:00:00Z", "9999-12-31T23:00:00Z", "out_of_range"),
        ("0001-01-01T00:00:00Z", "0002-01-01T00:00:00Z", "out_of_range"),
        ("2027-02-29T00:00:00Z", "2028-01-01T00:00:00Z", "out_of_range"),
        ("2027-01-01T24:00:00Z", "2028-01-01T00:00:00Z", "out_of_range"),
    ],
)
def test_a_term_that_is_too_long_or_out_of_the_calendar_is_refused_before_the_database_does(start, until, code):
    with pytest.raises(NotCommitments) as refused:
        read_commitments(file_of({"start": start, "until": until}))
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("start", "until"),
    [
        ("2027-01-01T00:00:00Z", "2047-01-01T00:00:00Z"),
        ("2080-02-29T00:00:00Z", "2100-02-28T00:00:00Z"),
        ("2028-02-29T05:00:00Z", "2048-02-29T05:00:00Z"),
        ("2999-12-31T22:00:00Z", "2999-12-31T23:00:00Z"),
    ],
)
def test_the_longest_terms_are_taken_by_the_database(north, start, until):
    committed(
        {
            "start": start,
            "until": until,
            "recurring": "999999999999.999999",
            "upfront": "999999999999.999999",
            "units": 1000000,
        }
    )
    assert CommitmentVersion.objects.count() == 1


def test_a_preview_is_made_before_the_price_book_is_locked(north, monkeypatch):
    LedgerPeriod.objects.create(organisation=north.owner, month=MONTH)
    known, order = preview_of, []

    def noted(*given):
        order.append("read")
        return known(*given)

    monkeypatch.setattr(operations, "preview_of", noted)
    monkeypatch.setattr(locks, "rewrite_price_book", lambda: order.append("locked"))
    apply_commitments(SYSTEM, "acme", file_of({}))
    assert order == ["read", "read", "locked"]


def test_two_versions_that_were_planned_at_the_same_time_do_not_mix(north):
    committed()
    plans = [plan_commitments(SYSTEM, "acme", file_of({"units": number})) for number in (3, 4)]
    apply_commitments(SYSTEM, "acme", file_of({"units": 3}), expected=plans[0].digest)
    with pytest.raises(Exception, match="plan again"):
        apply_commitments(SYSTEM, "acme", file_of({"units": 4}), expected=plans[1].digest)
    assert CommitmentVersion.objects.latest("id").units == 3


def test_a_commitment_that_is_withdrawn_after_the_close_is_taken_back_in_the_next_month(north):
    committed()
    checksum = closed().checksum
    committed({"withdrawn": "true"})
    assert balances() == USAGE_ONLY
    october = balances(entry__period__month=MONTH)
    assert (october["purchases"], october["acme/one"]) == (-HOURS, 2)
    assert balances(entry__period__month=NOVEMBER)["purchases"] == HOURS
    period = LedgerPeriod.objects.get(month=MONTH)
    assert (period.state, period.checksum) == ("closed", checksum)
    assert commitment_report(SYSTEM, "acme", MONTH).commitments == ()
    assert discrepancies() == ()
    committed()
    assert balances()["acme/one"] == 2
    assert discrepancies() == ()


def test_a_term_that_begins_within_a_day_and_ends_in_a_closed_month_bears_only_its_hours(north):
    LedgerPeriod.objects.get_or_create(organisation=north.owner, month=MONTH)
    closed()
    committed({"start": "2026-10-05T02:00:00Z", "until": "2026-10-05T05:00:00Z", "upfront": 3})
    # Of the run from 00:00 to 04:00, two hours are in the term: half of two units each.
    assert balances() == {
        "acme/one": 6, "cluster_pool": -10, "commitment_covered": 5, "commitment_unused": 2, "purchases": -3,
    }  # fmt: skip
    assert set(LedgerEntry.objects.filter(kind="commitment").values_list("period__month", flat=True)) == {NOVEMBER}
    assert discrepancies() == ()


def test_a_worker_that_dies_between_the_entries_and_the_hours_leaves_nothing_behind(north, monkeypatch):
    def dies(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(commitment_days, "insert_rows", dies)
    with pytest.raises(KeyboardInterrupt):
        committed()
    monkeypatch.undo()
    assert not CommitmentDay.objects.exists()
    assert not LedgerEntry.objects.filter(kind="commitment").exists()
    assert CommitmentDueDay.objects.count() == DAYS
    period = LedgerPeriod.objects.get(month=MONTH)
    with pytest.raises(Exception, match="not split"):
        periods.begin_closing(SYSTEM, period.id)
    assert split() == DAYS
    assert balances()["acme/one"] == 2


def test_cores_of_pods_without_gpus_are_no_usage_of_a_gpu_flavor(north):
    record_runs([make_run(north, "acme/two", flavor="h100", gpu_units=0, started_at=at(6), until_at=at(6, 4))])
    LedgerPeriod.objects.get_or_create(organisation=north.owner, month=NOVEMBER)
    record_runs([
        make_run(north, "acme/two", gpu_units=0, started_at=at(2, month=11), until_at=at(2, 4, month=11))
    ])  # fmt: skip
    committed({"start": "2026-10-05T00:00:00Z", "until": "2026-11-04T00:00:00Z"})
    (october,) = commitment_report(SYSTEM, "acme", MONTH).coverage
    (november,) = commitment_report(SYSTEM, "acme", NOVEMBER).coverage
    assert (october.quantity, october.covered) == (4 * 3_600_000_000, 4 * 3_600_000_000)
    assert (november.quantity, november.covered) == (0, 0)


def test_a_file_of_too_many_commitments_is_refused_before_anything_is_asked(north):
    text = "commitments:\n" + "- {name: c, kind: own_purchase}\n" * 1_001
    with pytest.raises(NotCommitments) as refused:
        read_commitments(text)
    assert refused.value.code == "required"
    with pytest.raises(NotCommitments) as refused:
        read_commitments(file_of(*({"name": f"c{number}"} for number in range(10_000))))
    assert refused.value.code == "too_long"
    assert not Commitment.objects.exists()


def test_a_team_that_was_renamed_keeps_what_it_bears_and_who_has_its_old_path_now_does_not_see_it(north):
    committed()
    team = make_tenant("acme/one")
    change_tenant(SYSTEM, team.id, name="uno")
    make_tenant("acme/one")
    rows = {}
    for path in ("acme/uno", "acme/one", "acme"):
        viewer = make_user()
        bind(viewer, path, "viewer")
        report = sharing_report(actor_for(viewer), "acme", MONTH)
        rows[path] = [one.commitment for one in report.tenants if one.commitment]
    assert rows == {"acme/uno": [-8 * 10**12], "acme/one": [], "acme": [-8 * 10**12]}
