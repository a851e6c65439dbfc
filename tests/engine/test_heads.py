"""How much of a long queue each tenant and shape is looked at."""

from hypothesis import given
from hypothesis import strategies as st

from placement.cycle.heads import fill, heads

wants = st.dictionaries(st.integers(0, 50), st.integers(1, 1000), max_size=30)


@given(st.integers(0, 5000), wants)
def test_all_is_given_as_far_as_anybody_wants_it(amount, wanted):
    assert sum(fill(amount, wanted).values()) == min(amount, sum(wanted.values()))


@given(st.integers(0, 5000), wants)
def test_who_gets_less_than_they_want_gets_as_much_as_anybody_within_one(amount, wanted):
    shares = fill(amount, wanted)
    assert all(0 <= shares[name] <= wanted[name] for name in wanted)
    most = max(shares.values(), default=0)
    assert all(shares[name] >= most - 1 for name in wanted if shares[name] < wanted[name])


@given(st.integers(1, 5000), st.dictionaries(st.integers(0, 20), wants.filter(bool), min_size=1, max_size=20))
def test_no_tenant_is_hidden_while_there_are_fewer_tenants_than_depth(depth, waiting):
    taken = heads(depth, waiting)
    assert sum(sum(shapes.values()) for shapes in taken.values()) <= depth
    if len(waiting) <= depth:
        assert all(sum(taken[tenant].values()) >= 1 for tenant in waiting)


def test_twenty_thousand_jobs_of_one_tenant_leave_room_for_all_jobs_of_another():
    flood = {f"shape-{number}": 1 for number in range(20_000)}
    taken = heads(20_000, {"flood": flood, "quiet": {"one": 3, "two": 1}})
    assert taken["quiet"] == {"one": 3, "two": 1}
    assert sum(taken["flood"].values()) == 19_996
