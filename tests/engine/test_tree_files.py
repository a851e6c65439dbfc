"""Tree files: each field is read in one form, or refused with its place."""

import pytest
import yaml

from federation.engine.intake.reading import Refused
from federation.engine.tree.items import Key, Kind, changes_of
from federation.engine.tree.reading import MOST_ENTRIES, read_tree
from federation.engine.tree.writing import tree_text

HEAD = "apiVersion: switchyard/v1\nkind: TenantTree\n"


def file_of(*tenants, **top):
    return HEAD + yaml.safe_dump({"tenants": list(tenants), **top}, sort_keys=False)


def team(**fields):
    return file_of({"path": "acme/a", "kind": "team", **fields})


def items_of(text, kind):
    return {key.name: value for key, value in read_tree(text).items.items() if key.kind is kind}


def faults_of(text):
    with pytest.raises(Refused) as refused:
        read_tree(text)
    return [(fault.field, fault.code) for fault in refused.value.faults]


def fault_of(field, value):
    """Of a field of a team: where below it, and the code."""
    return [(where.removeprefix("tenants[0]."), code) for where, code in faults_of(team(**{field: value}))]


def of_limit(**fields):
    return items_of(team(limits=[{"resource": "gpu", "nominal": 8, **fields}]), Kind.LIMIT)


def test_an_amount_is_written_with_forty_characters_at_most():
    assert of_limit(nominal="8".zfill(40)) == of_limit()
    assert fault_of("limits", [{"resource": "gpu", "nominal": "8".zfill(41)}]) == [("limits[0].nominal", "too_long")]


def test_a_limit_neither_borrows_nor_restricts_lending_unless_it_says_so():
    usual = {
        "resource": "gpu",
        "clusters": [],
        "nominal": "8",
        "borrowing_limit": "0",
        "lending_limit": None,
        "reclaims": False,
        "reclaim_after": None,
    }
    assert of_limit() == {"gpu": usual}
    assert of_limit(borrowing_limit=None, lending_limit=None) == {"gpu": {**usual, "borrowing_limit": None}}
    assert of_limit(reclaim_after=3600) == {"gpu": {**usual, "reclaim_after": 3600}}
    assert of_limit(borrowing_limit=2, lending_limit=3, reclaims=True) == {
        "gpu": {**usual, "borrowing_limit": "2", "lending_limit": "3", "reclaims": True}
    }
    both = {"gpu on north, south": {**usual, "clusters": ["north", "south"]}}
    assert of_limit(clusters=["north", "south"]) == both


def test_limits_of_users_and_of_submissions_are_read():
    assert items_of(team(user_limits=[{"resource": "jobs", "most": 4}]), Kind.USER_LIMIT) == {
        "jobs": {"resource": "jobs", "most": "4"}
    }
    for waiting, rate in ((0, None), (None, 1), (10_000_000, 1_000_000)):
        given = {"most_waiting": waiting, "jobs_per_minute": rate}
        assert items_of(team(submission_limit=given), Kind.SUBMISSION_LIMIT) == {"": given}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, ("jobs_per_minute", "required")),
        ({"most_waiting": -1}, ("most_waiting", "out_of_range")),
        ({"most_waiting": 10_000_001}, ("most_waiting", "out_of_range")),
        ({"jobs_per_minute": 0}, ("jobs_per_minute", "out_of_range")),
        ({"jobs_per_minute": 1_000_001}, ("jobs_per_minute", "out_of_range")),
    ],
)
def test_a_limit_of_submissions_out_of_its_range_is_refused(given, fault):
    where, code = fault
    assert (f"submission_limit.{where}", code) in fault_of("submission_limit", given)


def test_a_role_is_of_a_user_or_of_a_group():
    found = items_of(
        team(roles=[{"user": "Ann@Example.org", "role": "manager"}, {"group": "Ops", "role": "viewer"}]), Kind.ROLE
    )
    assert found == {
        "manager of ann@example.org": {"user": "ann@example.org", "role": "manager", "expires_at": None},
        "viewer of the group Ops": {"group": "Ops", "role": "viewer", "expires_at": None},
    }
    ends = team(roles=[{"user": "a@b", "role": "viewer", "expires_at": "2099-01-01T02:00:00+02:00"}])
    assert items_of(ends, Kind.ROLE)["viewer of a@b"]["expires_at"] == "2099-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"role": "viewer"}, [("user", "user_or_group")]),
        ({"user": "a@b", "group": "ops", "role": "viewer"}, [("user", "user_or_group")]),
        ({"user": "ann", "role": "viewer"}, [("user", "bad_format")]),
        ({"user": "a@b"}, [("role", "required")]),
        ({"group": "o" * 255, "role": "viewer"}, [("group", "too_long")]),
        ({"group": "a\u200bb", "role": "viewer"}, [("group", "out_of_range")]),
        ({"group": "ops", "role": "viewer", "rank": 1}, [("rank", "unknown_field")]),
    ],
)
def test_a_wrong_role_is_refused(given, expected):
    assert fault_of("roles", [given]) == [(f"roles[0].{field}", code) for field, code in expected]


def of_budget(**fields):
    return items_of(team(budgets=[fields]), Kind.BUDGET)


def test_a_budget_is_of_money_or_of_hours_for_a_period_or_between_two_days():
    assert of_budget(gpu_hours="500.50", period="month") == {
        "gpu_hours per month": {
            "gpu_hours": "500.5", "period": "month", "notify_at": [50, 80, 100], "stops_admission": False,
        }
    }  # fmt: skip
    days = {"period": "dates", "starts_on": "2099-01-01", "ends_on": "2099-06-30"}
    assert of_budget(amount=1000, currency="EUR", notify_at=[1000, 1, 1], stops_admission=True, **days) == {
        "amount from 2099-01-01 to 2099-06-30": {
            "amount": "1000", "currency": "EUR", **days, "notify_at": [1, 1000], "stops_admission": True,
        }
    }  # fmt: skip
    assert of_budget(gpu_hours=1, period="year", notify_at=[])["gpu_hours per year"]["notify_at"] == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"period": "month"}, [("amount", "required")]),
        ({"amount": 1, "gpu_hours": 1, "currency": "EUR", "period": "month"}, [("amount", "given_twice")]),
        ({"amount": 1, "period": "month"}, [("currency", "bad_format")]),
        ({"amount": 1, "currency": "eur", "period": "month"}, [("currency", "bad_format")]),
        ({"gpu_hours": 1, "currency": "EUR", "period": "month"}, [("currency", "bad_format")]),
        ({"gpu_hours": 1}, [("period", "required")]),
        ({"gpu_hours": 1, "period": "month", "starts_on": "2099-01-01"}, [("starts_on", "not_for_this_period")]),
        ({"gpu_hours": 1, "period": "month", "ends_on": "2099-01-01"}, [("starts_on", "not_for_this_period")]),
        ({"gpu_hours": 1, "period": "dates", "starts_on": "2099-01-01"}, [("starts_on", "not_for_this_period")]),
        ({"gpu_hours": 1, "period": "dates"}, [("starts_on", "not_for_this_period")]),
        ({"gpu_hours": 1, "period": "month", "notify_at": [0]}, [("notify_at", "out_of_range")]),
        ({"gpu_hours": 1, "period": "month", "notify_at": [1001]}, [("notify_at", "out_of_range")]),
        ({"gpu_hours": 1, "period": "month", "notify_at": [True]}, [("notify_at", "out_of_range")]),
        ({"gpu_hours": 1, "period": "month", "notify_at": [5] * 11}, [("notify_at", "too_many")]),
        ({"gpu_hours": "1.1234567", "period": "month"}, [("gpu_hours", "bad_format")]),
        ({"gpu_hours": "1000000000000.1", "period": "month"}, [("gpu_hours", "bad_format")]),
        (
            {"gpu_hours": 1, "period": "dates", "starts_on": "2099-02-30", "ends_on": "20990301"},
            [("starts_on", "bad_format"), ("ends_on", "bad_format"), ("starts_on", "not_for_this_period")],
        ),
    ],
)
def test_a_wrong_budget_is_refused(given, expected):
    assert fault_of("budgets", [given]) == [(f"budgets[0].{field}", code) for field, code in expected]


def test_the_largest_amount_of_a_budget_is_a_million_millions():
    assert of_budget(gpu_hours=10**12, period="month")["gpu_hours per month"]["gpu_hours"] == "1000000000000"


def test_terms_of_invoices_have_thirty_days_unless_they_say_otherwise():
    none = dict.fromkeys(["issuer", "tax_name", "cost_centre", "gl_account", "remark"], "")
    assert items_of(team(invoice_terms={}), Kind.INVOICE_TERMS) == {"": {**none, "tax_rate": None, "payment_days": 30}}
    given = {
        "issuer": "i" * 200,
        "tax_name": "t" * 40,
        "cost_centre": "c" * 200,
        "gl_account": "g" * 200,
        "remark": "r" * 500,
    }
    for days in (0, 365):
        terms = {**given, "tax_rate": "0.190", "payment_days": days}
        assert items_of(team(invoice_terms=terms), Kind.INVOICE_TERMS) == {"": {**terms, "tax_rate": "0.19"}}
    for name, text in given.items():
        assert fault_of("invoice_terms", {name: f"{text}x"}) == [(f"invoice_terms.{name}", "too_long")]
    for days in (-1, 366):
        assert fault_of("invoice_terms", {"payment_days": days}) == [("invoice_terms.payment_days", "out_of_range")]


@pytest.mark.parametrize("weight", ["0.01", "2.5", "1000"])
def test_a_weight_is_kept_without_trailing_zeros(weight):
    assert items_of(team(weight=f"{weight}"), Kind.WEIGHT) == {"": {"weight": weight}}


@pytest.mark.parametrize(
    ("weight", "code"),
    [
        ("0.009", "out_of_range"),
        ("0", "out_of_range"),
        ("1000.01", "out_of_range"),
        ("2.555", "out_of_range"),
        ("x", "bad_format"),
    ],
)
def test_a_weight_out_of_its_range_is_refused(weight, code):
    assert fault_of("weight", weight) == [("weight", code)]


def test_the_usual_weight_and_no_labels_are_no_items_but_their_sections_are_complete():
    wanted = read_tree(team(weight="1.00", labels={}, limits=[], submission_limit=None, invoice_terms=None))
    assert set(wanted.items) == {Key(Kind.TENANT, "acme/a")}
    complete = {Kind.WEIGHT, Kind.LABELS, Kind.LIMIT, Kind.SUBMISSION_LIMIT}
    assert wanted.sections == {(kind, "acme/a") for kind in complete}
    assert not read_tree(team(limits=None, weight=None)).sections


def test_labels_are_those_of_kubernetes():
    most = {f"k{number}": "v" for number in range(64)}
    assert items_of(team(labels=most), Kind.LABELS) == {"": {"labels": most}}
    assert fault_of("labels", {**most, "one": "more"}) == [("labels", "too_many")]
    for key, value in (("-a", "v"), ("a", "-v"), ("a", 1)):
        assert fault_of("labels", {key: value}) == [(f"labels.{key}", "invalid_label")]
    assert fault_of("labels", {f"{'ä' * 41}": "v"}) == [("labels." + "\\xe4" * 40, "invalid_label")]


@pytest.mark.parametrize(
    ("tenant", "expected"),
    [
        ({"path": "acme"}, []),
        ({"path": "acme", "kind": "organisation"}, []),
        ({"path": "/".join("abcdefghijklmnop"), "kind": "team"}, []),
        ({"path": "/".join("abcdefghijklmnopq"), "kind": "team"}, [("path", "bad_format")]),
        ({"path": "acme/A", "kind": "team"}, [("path", "bad_format")]),
        ({"path": f"acme/{'a' * 1095}", "kind": "team"}, [("path", "bad_format")]),
        ({"path": f"acme/{'a' * 1096}"}, [("path", "too_long")]),
        ({"path": "acme/a"}, [("kind", "required")]),
        ({"path": "acme", "kind": "team"}, [("kind", "wrong_kind")]),
        ({"path": "acme/a", "kind": "organisation"}, [("kind", "wrong_kind")]),
    ],
)
def test_an_organisation_has_no_parent_and_every_other_tenant_has_one(tenant, expected):
    text = file_of(tenant)
    if expected:
        assert faults_of(text) == [(f"tenants[0].{field}", code) for field, code in expected]
    else:
        assert items_of(text, Kind.TENANT) == {"": {"kind": tenant.get("kind", "organisation")}}


def test_an_item_twice_is_refused_where_it_stands_the_second_time():
    twice = [{"resource": "gpu", "nominal": 1}, {"resource": "gpu", "nominal": 2}]
    assert fault_of("limits", twice) == [("limits[1]", "given_twice")]
    assert faults_of(file_of({"path": "acme"}, {"path": "acme"})) == [("tenants[1].path", "given_twice")]


def test_a_faulty_item_is_not_also_one_that_the_file_has_twice():
    assert fault_of("limits", [{"resource": "gpu", "nominal": "x"}, {"resource": "gpu", "nominal": 2}]) == [
        ("limits[0].nominal", "not_a_quantity")
    ]
    assert fault_of("limits", ["gpu", "gpu"]) == [("limits[0]", "wrong_type"), ("limits[1]", "wrong_type")]


@pytest.mark.parametrize(
    ("field", "value", "where", "code"),
    [
        ("limits", [{"resource": "gpu", "nominal": ""}], "limits[0].nominal", "not_a_quantity"),
        (
            "limits",
            [{"resource": "gpu", "nominal": 1, "lending_limit": ""}],
            "limits[0].lending_limit",
            "not_a_quantity",
        ),
        ("user_limits", [{"resource": "gpu", "most": ""}], "user_limits[0].most", "not_a_quantity"),
        ("budgets", [{"gpu_hours": "", "period": "month"}], "budgets[0].gpu_hours", "bad_format"),
        ("weight", "", "weight", "bad_format"),
        ("invoice_terms", {"tax_rate": ""}, "invoice_terms.tax_rate", "bad_format"),
    ],
)
def test_an_empty_text_is_no_amount(field, value, where, code):
    """It once counted as 0, or as if the field was absent."""
    assert fault_of(field, value) == [(where, code)]


def test_a_list_has_five_hundred_entries_at_most():
    limits = [{"resource": "gpu", "nominal": 1, "clusters": [f"c{number}"]} for number in range(MOST_ENTRIES)]
    assert MOST_ENTRIES == 500
    assert len(items_of(team(limits=limits), Kind.LIMIT)) == 500
    assert ("limits", "too_many") in fault_of("limits", [*limits, {"resource": "gpu", "nominal": 1}])


def test_a_class_keeps_the_place_of_its_faults():
    [(field, _)] = faults_of(file_of({"path": "acme"}, priority_classes=[{"name": "high", "value": "x"}]))[:1]
    assert field == "priority_classes[0].value"
    assert faults_of(file_of({"path": "acme"}, priority_classes=["high"]))[0][0] == "priority_classes[0]"


def test_a_file_names_its_version_and_its_kind():
    assert faults_of("tenants: []\n") == [("apiVersion", "required"), ("kind", "required")]
    assert faults_of("") == [("", "wrong_type")]
    assert faults_of(HEAD + "names: []\n")[0] == ("names", "unknown_field")


def test_a_written_file_reads_back_as_the_same_items_and_its_empty_sections():
    text = file_of(
        {"path": "acme", "labels": {"a": "b"}},
        {
            "path": "acme/a",
            "kind": "team",
            "weight": "2.5",
            "limits": [{"resource": "gpu", "nominal": 8, "borrowing_limit": None, "reclaims": True}],
            "user_limits": [{"resource": "jobs", "most": 4}],
            "class_limits": [{"priority_class": "high", "resource": "gpu", "most": "0.5"}],
            "submission_limit": {"most_waiting": 3},
            "roles": [{"user": "a@b", "role": "viewer"}],
            "budgets": [{"gpu_hours": 5, "period": "month"}],
            "invoice_terms": {"remark": "thanks"},
        },
        priority_classes=[{"name": "high", "value": 10}],
    )
    items = read_tree(text).items
    assert len({key.kind for key in items}) == len(Kind)
    settled = {
        key: {**value, "is_default": False} if key.kind is Kind.PRIORITY_CLASS else value
        for key, value in items.items()
    }
    for complete in ((), Kind):
        again = read_tree(tree_text(settled, complete=complete, comments=["two\nlines"]))
        assert changes_of(again, settled, prune=True) == []
    assert {kind for kind, path in again.sections if path == "acme"} == set(Kind) - {
        Kind.TENANT, Kind.INVOICE_TERMS, Kind.PRIORITY_CLASS,
    }  # fmt: skip
    assert tree_text(settled, comments=["two\nlines"]).startswith("# two lines\napiVersion: ")
