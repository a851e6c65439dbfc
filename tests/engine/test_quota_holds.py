from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.holds import HoldRefusal, HoldRequest, Limit, grant, never_fits
from tests.laws import among

PATHS = ["a", "a/b", "a/b/c", "a/d"]
CLUSTERS = ["north", "south"]


some_clusters = st.sets(st.sampled_from(CLUSTERS))


@st.composite
def limits(draw):
    made = []
    for number in range(draw(st.integers(0, 6))):
        nominal, held = draw(st.integers(0, 20)), draw(st.integers(0, 20))
        scope = tuple(sorted(draw(some_clusters)))
        made.append(
            Limit(
                id=UUID(int=number),
                tenant_path=draw(among(*PATHS)),
                resource=draw(among("gpu", "cpu")),
                clusters=scope,
                nominal=nominal,
                cap=max(nominal, held),
                held=held,
            )
        )
    made = list({(limit.tenant_path, limit.resource, limit.clusters): limit for limit in made}.values())
    return sorted(made, key=lambda limit: (limit.tenant_path.count("/"), limit.id))


requests = st.lists(
    st.builds(
        lambda number, path, cluster, amounts: HoldRequest(UUID(int=number), UUID(int=0), path, cluster, amounts),
        st.integers(0, 10**9),
        st.sampled_from(PATHS),
        st.sampled_from(CLUSTERS),
        st.dictionaries(st.sampled_from(["gpu", "cpu", "memory"]), st.integers(0, 12)),
    ),
    max_size=12,
    unique_by=lambda request: request.holder_id,
)


def counts(request, limit):
    on_path = request.tenant_path == limit.tenant_path or request.tenant_path.startswith(f"{limit.tenant_path}/")
    covers = not limit.clusters or request.cluster_name in limit.clusters
    return on_path and covers and request.amounts.get(limit.resource, 0) > 0


def counts_below(other, limit):
    """Whether what is held at the other limit counts at this one."""
    is_alike = (other.resource, other.clusters) == (limit.resource, limit.clusters)
    return is_alike and f"{other.tenant_path}/".startswith(f"{limit.tenant_path}/")


@pytest.mark.law
@given(requests, limits())
def test_no_limit_is_ever_exceeded_and_every_limit_on_the_path_counts(asked, book):
    outcomes, takes = grant(asked, book)
    granted = [request for request in asked if outcomes[request.holder_id] is None]
    for limit in book:
        below = {other.id for other in book if counts_below(other, limit)}
        taken = sum(take.amount for take in takes if take.limit_id in below)
        assert taken == sum(request.amounts[limit.resource] for request in granted if counts(request, limit))
        assert taken == 0 or limit.held + taken <= limit.cap


@pytest.mark.law
@given(requests, limits())
def test_a_refused_request_would_not_have_fitted_after_those_before_it(asked, book):
    outcomes, _ = grant(asked, book)
    by_id = {limit.id: limit for limit in book}
    for number, request in enumerate(asked):
        refusal = outcomes[request.holder_id]
        if refusal is None:
            continue
        limit = by_id[refusal.limit_id]
        before = [
            earlier for earlier in asked[:number] if outcomes[earlier.holder_id] is None and counts(earlier, limit)
        ]
        held = limit.held + sum(earlier.amounts[limit.resource] for earlier in before)
        assert counts(request, limit)
        assert held + request.amounts[limit.resource] > limit.cap
        assert (refusal.held, refusal.asked) == (held, request.amounts[limit.resource])


@pytest.mark.law
@given(requests, limits())
def test_later_requests_never_change_earlier_outcomes(asked, book):
    outcomes, _ = grant(asked, book)
    for number in range(len(asked)):
        shorter, _ = grant(asked[:number], book)
        assert shorter == {request.holder_id: outcomes[request.holder_id] for request in asked[:number]}


@pytest.mark.law
@given(requests, limits())
def test_what_is_granted_now_was_never_refused_for_good(asked, book):
    outcomes, _ = grant(asked, book)
    for request in asked:
        for_good = never_fits(request.tenant_path, [(request.cluster_name, request.amounts)], book)
        if outcomes[request.holder_id] is None and all(limit.cap == limit.nominal for limit in book):
            assert for_good is None
        if for_good is not None:
            assert for_good[0].asked > for_good[0].cap


def test_earlier_requests_win_and_a_refused_one_takes_nothing():
    root = Limit(UUID(int=1), "a", "gpu", (), nominal=10, cap=10, held=3)
    leaf = Limit(UUID(int=2), "a/b", "gpu", (), nominal=6, cap=6, held=0)
    asked = [
        HoldRequest(UUID(int=number), UUID(int=0), path, "north", {"gpu": amount})
        for number, (path, amount) in enumerate([("a/b", 5), ("a/b", 2), ("a/d", 2), ("a", 1), ("ab", 99)])
    ]
    outcomes, takes = grant(asked, [root, leaf])
    refused = {holder.int: refusal for holder, refusal in outcomes.items() if refusal}
    assert {number: (one.tenant_path, one.cap, one.held, one.asked) for number, one in refused.items()} == {
        1: ("a/b", 6, 5, 2),
        3: ("a", 10, 10, 1),
    }
    assert (
        refused[1].message
        == "a/b has a limit of 0.006 gpu: 0.005 held, 0.002 requested; it would fit if a/b could borrow 0.001 more"
    )
    assert [(take.holder_id.int, take.limit_id.int, take.amount) for take in takes] == [(0, 2, 5), (2, 1, 2)]


def test_a_refusal_for_another_reason_than_a_limit_names_none():
    refused = HoldRefusal("already_held", "this holder has a hold")
    assert (refused.limit_id, refused.tenant_path, refused.resource) == (None, "", "")
    assert refused.cap == refused.held == refused.asked == 0


def test_what_is_larger_than_every_limit_is_refused_for_each_cluster_and_what_fits_one_is_not():
    small = Limit(UUID(int=1), "a", "gpu", ("north",), nominal=4, cap=4, held=0)
    large = Limit(UUID(int=2), "a", "gpu", ("south",), nominal=8, cap=8, held=8)
    options = [("north", {"gpu": 6}), ("south", {"gpu": 6})]
    assert never_fits("a/b", options, [small, large]) is None
    refusals = never_fits("a/b", [(name, {"gpu": 9}) for name, _ in options], [small, large])
    assert [(one.limit_id, one.cap, one.held, one.asked) for one in refusals] == [
        (small.id, 4, 0, 9),
        (large.id, 8, 0, 9),
    ]
    assert never_fits("a/b", [], [small, large]) is None
