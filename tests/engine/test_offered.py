from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.offered import NONE, DeviceCount, count_on_node

NODES = st.tuples(
    st.integers(0, 64), st.integers(-5, 100), st.integers(-5, 100), st.booleans(), st.booleans()
)  # units, used, used by others, seen, open


def counted(node) -> DeviceCount:
    units, used, others, is_seen, is_open = node
    return count_on_node(units, used, others, is_seen=is_seen, is_open=is_open)


@given(st.lists(NODES, max_size=6))
def test_every_device_counts_once_whatever_a_node_reports(nodes):
    total = sum(map(counted, nodes), NONE)
    assert total.total == sum(units for units, *_ in nodes)
    assert min(total.ours, total.others, total.free, total.out_of_service, total.unseen) >= 0


@given(NODES)
def test_nothing_is_free_where_no_pod_can_go_or_nobody_looks(node):
    *_, is_seen, is_open = node
    count = counted(node)
    if not (is_seen and is_open):
        assert count.free == 0
    if not is_seen:
        assert count.out_of_service == 0


def test_a_node_that_reports_more_in_use_than_it_has_is_full():
    assert count_on_node(4, 9, 7, is_seen=True, is_open=True) == DeviceCount(others=4)
    assert count_on_node(8, 5, 2, is_seen=True, is_open=True) == DeviceCount(ours=3, others=2, free=3)
