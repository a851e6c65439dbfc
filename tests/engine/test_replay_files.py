"""Fleet files and traces: what they mean, and where an error in one is."""

from decimal import Decimal

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from simulator import fleetfile
from simulator.charts import bars, distribution, lines
from simulator.exports import trace_text
from simulator.figures import Curve, percentile
from simulator.figures import distribution as spread_of
from simulator.fleetfile import read_fleet
from simulator.traces import COLUMNS, Shaping, own_row, read_trace
from simulator.values import ClusterPlan, Conditions, Machine, ReplayError, TraceJob
from tests.laws import examples

OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time\n"
PHILLY = "job_id,num_gpu,submit_time,duration\n"
OWN = "job,submitted_at,seconds,pods,gpus,gpu_milli\n"
FLEET = """
clusters:
  - name: east
    member: bestfit
    hints: false
    nodes:
      - {name: a, count: 3, model: A100, gpus: 8, cpu: 96.5, memory_gib: 1024, price: "2.50", rack: "r{rack}", nodes_per_rack: 2}
      - {name: s, model: A100, gpus: 4, cpu: 48, memory_gib: 512, spot: true, price: 1, pods: 20}
      - {name: c, cpu: 16, memory_gib: 64}
    price_changes:
      - {at_hours: 2, flavor: A100, price: 3}
      - {at_hours: 1, flavor: A100-spot, price: 0.5}
"""


def complaint(read, name, text):
    """What the reader says against the text, or nothing."""
    try:
        read(name, text)
    except ReplayError as error:
        return str(error)
    return ""


def test_openb_pods_run_from_their_start_to_their_deletion():
    one, two, three = read_trace(
        "t", OPENB + "b,6000,12288,1,460,A|B,LS,120,500,130\na,1,2,4,1000,,LS,100,,\nc,9,9,0,0,,,101,,\n"
    )
    assert (one.name, one.submitted, one.seconds, one.gpus, one.models) == ("a", 0.0, None, 4, ())
    assert (two.name, two.gpus) == ("c", 0)
    assert (three.submitted, three.seconds, three.gpu_milli, three.models) == (20.0, 370.0, 460, ("A", "B"))


def test_an_openb_pod_may_end_when_it_starts():
    (one,) = read_trace("t", OPENB + "a,1,1,1,1000,,LS,100,130,130\n")
    assert (one.submitted, one.seconds) == (0.0, 0.0)


def test_openb_pods_without_times_come_one_a_second_and_stay():
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1000\nb,1,1,1,500\n"
    assert [(one.submitted, one.seconds) for one in read_trace("t", text)] == [(0.0, None), (1.0, None)]


def test_philly_jobs_of_more_than_a_node_are_gangs_of_whole_nodes():
    one, two = read_trace("t", PHILLY + "1,20,5000,60000\n0,4,1000,1500\n", Shaping(8, 1000, 10))
    assert (one.submitted, one.seconds, one.pods, one.gpus, one.cpu_millicores) == (0.0, 1.5, 1, 4, 4000)
    assert (two.submitted, two.seconds, two.pods, two.gpus, two.memory_mib) == (4.0, 60.0, 3, 8, 80)


def test_our_own_rows_come_back_as_they_were():
    text = OWN + "x,2026-01-01T00:00:01Z,,2,8,\ny,2026-01-01T01:00:00+01:00,7.5,1,1,250\n"
    jobs = read_trace("t", text)
    assert [(one.name, one.submitted, one.seconds, one.gpu_milli) for one in jobs] == [
        ("y", 0, 7.5, 250),
        ("x", 1, None, 1000),
    ]
    again = ",".join(COLUMNS) + "\n" + "".join(",".join(map(str, own_row(one).values())) + "\n" for one in jobs)
    assert read_trace("t", again) == jobs


def test_every_column_of_our_own_format_is_read():
    header = "job,submitted_at,seconds,pods,gpus,gpu_milli,cpu_millicores,memory_mib,models,priority,tenant,estimated_seconds,checkpoint_seconds,kind\n"
    full = "x,7,60,2,1,500,1500,2048,B| A,-5,acme/ml,90,30,k\n"
    (job,) = read_trace("t", header + full)
    assert job == TraceJob("x", 0.0, 60.0, 2, 1, 500, 1500, 2048, ("A", "B"), -5, "acme/ml", 90, 30, "k")
    (bare,) = read_trace("t", "job,submitted_at,seconds,pods,gpus\nx,7,,,4\n")
    assert bare == TraceJob("x", 0.0, None, 1, 4, 1000, 0, 0, (), 0, "trace", None, None, "")
    assert bare == TraceJob("x", 0.0, None, 1, 4)
    assert own_row(bare)["seconds"] == own_row(bare)["estimated_seconds"] == own_row(bare)["checkpoint_seconds"] == ""


def test_openb_pods_of_several_gpus_take_whole_ones_and_those_of_none_no_model():
    rows = "a,1,1,2,300,T4,LS,0,,\nb,1,1,0,300,T4,LS,1,,\nc,1,1,1,,T4,LS,2,,\n"
    found = read_trace("t", OPENB + rows)
    assert [(one.pods, one.gpus, one.gpu_milli, one.models) for one in found] == [
        (1, 2, 1000, ("T4",)), (1, 0, 1000, ()), (1, 1, 1000, ("T4",)),
    ]  # fmt: skip


def test_a_philly_job_of_exactly_a_node_is_one_pod_with_the_usual_cores_and_memory():
    (job,) = read_trace("t", PHILLY + "1,8,0,1000\n")
    assert job == TraceJob("1", 0.0, 1.0, 1, 8, 1000, 48_000, 524_288)


def test_jobs_written_as_a_trace_are_read_as_they_were():
    jobs = read_trace("t", OWN + 'x,0,7.5,1,1,250\n"a, ""b""",1,,2,8,\n')
    text = trace_text(jobs)
    assert text.decode().splitlines()[0] == ",".join(COLUMNS)
    assert read_trace("t", text.decode()) == jobs
    assert trace_text([]).decode() == ",".join(COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("text", "largest", "more"),
    [
        (OWN + "x,0,1,{},1,\n", "100000", "100001"),
        (OWN + "x,0,1,1,{},\n", "100000", "100001"),
        (OWN + "x,0,1,1,1,{}\n", "1000", "1001"),
        (OWN + "x,0,{},1,1,\n", "1000000000000", "1000000000001"),
        (PHILLY + "1,{},3,4\n", "100000", "100001"),
        (OPENB + "a,1,1,{},,,,,,\n", "100000", "100001"),
        (OPENB + "a,1,1,1,{},,,,,\n", "1", "0"),
        (OWN[:-1] + ",priority\nx,0,1,1,1,,{}\n", "-1000000000000", "-1000000000001"),
    ],
)
def test_a_number_of_a_trace_goes_as_far_as_its_limit(text, largest, more):
    assert not complaint(read_trace, "t", text.format(largest))
    assert f"'{more}' is not between" in complaint(read_trace, "t", text.format(more))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "t: line 1, column 1: not a known trace format"),
        (
            "job,seconds,pods,gpus\n",
            "submitted_at is missing; a trace needs job, submitted_at, seconds, pods, gpus; name,",
        ),
        ("job_id,num_gpu,duration\n", "not a known trace format: submit_time is missing"),
        ("a,b\n1,2\n", "line 1, column 1: not a known trace format"),
        (PHILLY, "line 2: there are no jobs"),
        (PHILLY + "1,2\n", "line 2, column 3: has 2 columns, the header 4"),
        (PHILLY + "1,2,3,4,5\n", "line 2, column 5: has 5"),
        (PHILLY + "\n1,x,3,4\n", "line 3, column 2 (num_gpu): 'x' is not a number"),
        (PHILLY + "1,0,3,4\n", "line 2, column 2 (num_gpu): '0' is not between 1 and"),
        (PHILLY + "1,1.5,3,4\n", "'1.5' is not a whole number"),
        (PHILLY + "1,1,NaN,4\n", "column 3 (submit_time): 'NaN' is not between"),
        (PHILLY + "1,1,-1,4\n", "'-1' is not between"),
        (PHILLY + "1,1,1,inf\n", "column 4 (duration)"),
        (PHILLY + "1,1,1,1e99\n", "column 4 (duration)"),
        (PHILLY + "1,1,\u0661\u0662x,4\n", "is not a number"),
        (PHILLY + '1,"1,3,4\n', "line 2, column 1: unexpected end of data"),
        (OPENB + "a,1,1,1,1001,,,0,1,0\n", "column 5 (gpu_milli): '1001'"),
        (OPENB + "a,1,1,1,500,,,100,50,90\n", "column 9 (deletion_time): '50' is before its start"),
        (OWN + "x,2026-01-01T00:00:00,1,1,1,\n", "column 2 (submitted_at): '2026-01-01T00:00:00' has no offset"),
        (OWN + "x,yesterTay,1,1,1,\n", "is not a time"),
        (OWN + "x,0,1,1,2,500\n", "column 6 (gpu_milli): '500' is a fraction of a GPU"),
        (OWN + "x,0,1,100001,1,\n", "column 4 (pods)"),
    ],
)
def test_a_bad_trace_is_refused_with_line_and_column(text, told):
    with pytest.raises(ReplayError) as caught:
        read_trace("t", text)
    assert told in str(caught.value)


@given(st.text(max_size=60), st.sampled_from([OPENB, PHILLY, OWN, ""]))
@examples(150)
@example("\x00", PHILLY)
def test_no_text_makes_the_reader_stumble(text, header):
    told = complaint(read_trace, "t", header + text)
    assert not told or told.startswith("t: line ")


SMALL = "clusters: [{name: c, nodes: [{name: n, cpu: 1, memory_gib: 1}]}]"


def test_what_a_fleet_file_leaves_out_has_its_default():
    node = Machine("n-00000", "cpu", "", 0, 1000, 1024, ("", "", ""), "", 110, "on_demand")
    assert read_fleet("f", SMALL) == (ClusterPlan("c", (node,), {}, (), "spread", True, "", None, {}),)
    assert ClusterPlan("c", (node,)) == ClusterPlan("c", (node,), {}, (), "spread", True, "", None, {})
    assert Machine("n-00000", "cpu", "", 0, 1000, 1024) == node
    conditions = Conditions()
    assert (conditions.summary_seconds, conditions.cycle_seconds, conditions.failures) == (0.0, 0.0, None)
    assert (conditions.seed, conditions.reclaimed_seconds, conditions.checkpoint_seconds) == (1, 600.0, None)
    assert (conditions.since, conditions.until, conditions.stops, conditions.samples) == (0.0, None, False, 240)


def test_what_a_fleet_file_says_of_its_clusters_and_groups_is_kept():
    said = """
clusters:
  - name: c
    region: eu-west-1
    summary_seconds: 12.5
    nodes:
      - {name: n, count: 9, model: T4, gpus: 1, flavor: small, spot: true, cpu: 1, memory_gib: 0.5, zone: z, block: b,
         rack: "k{rack}", clique: q, interruptions_per_hour: 100}
      - {name: m, cpu: 2, memory_gib: 1, spot: true}
"""
    (plan,) = read_fleet("f", said)
    assert (plan.region, plan.summary_seconds) == ("eu-west-1", 12.5)
    spot = Machine("n-00000", "small", "T4", 1, 1000, 512, ("z", "b", "k1"), "q", 110, "spot")
    assert plan.machines[0] == spot
    assert [machine.domain[2] for machine in plan.machines[:9]] == ["k1"] * 8 + ["k2"], "a rack has eight nodes"
    assert plan.machines[9].flavor == "cpu"
    assert plan.interruptions == {"small": 100.0, "cpu": 0.05}


@pytest.mark.parametrize(
    ("of_node", "largest", "more"),
    [
        ("model: T4, gpus: {}", 1024, 1025),
        ("spot: true, interruptions_per_hour: {}", 100, 101),
        ("price: {}", 10**9, 10**9 + 1),
        ("pods: {}", 1, 0),
        ("nodes_per_rack: {}", 1, 0),
    ],
)
def test_a_number_of_a_fleet_file_goes_as_far_as_its_limit(of_node, largest, more):
    def text(number):
        return SMALL.replace("name: n,", f"name: n, {of_node.format(number)},")

    assert not complaint(read_fleet, "f", text(largest))
    assert f"is not between {min(1, largest) if more == 0 else 0} and" in complaint(read_fleet, "f", text(more))


def test_a_fleet_file_has_at_most_200_000_nodes_and_8_mib_of_text(monkeypatch):
    assert "longer than 8388608 characters" in complaint(read_fleet, "f", " " * (8 * 2**20 + 1))
    assert "count is not between 0 and 200000: 200001" in complaint(
        read_fleet, "f", SMALL.replace("name: n,", "name: n, count: 200001,")
    )
    monkeypatch.setattr(fleetfile, "MOST_NODES", 3)
    monkeypatch.setattr(fleetfile, "MOST_CHARACTERS", len(SMALL))
    assert not complaint(read_fleet, "f", SMALL)
    assert "longer than" in complaint(read_fleet, "f", SMALL + " ")
    monkeypatch.setattr(fleetfile, "MOST_CHARACTERS", 1000)
    two = "clusters: [{{name: c, nodes: [{{name: n, count: 2, cpu: 1, memory_gib: 1}}, {{name: m, count: {}, cpu: 1, memory_gib: 1}}]}}]"
    assert not complaint(read_fleet, "f", two.format(1))
    assert complaint(read_fleet, "f", two.format(2)).endswith("clusters has more than 3 nodes in total")


def test_a_fleet_file_means_what_it_says():
    (plan,) = read_fleet("f", FLEET)
    assert [machine.name for machine in plan.machines] == ["a-00000", "a-00001", "a-00002", "s-00000", "c-00000"]
    assert [machine.domain[2] for machine in plan.machines] == ["r1", "r1", "r2", "", ""]
    assert [machine.flavor for machine in plan.machines] == ["A100"] * 3 + ["A100-spot", "cpu"]
    assert plan.machines[0].cpu_millicores == 96_500
    assert plan.machines[4] == Machine("c-00000", "cpu", "", 0, 16_000, 65_536, ("", "", ""), "", 110, "on_demand")
    assert (plan.machines[3].capacity_type, plan.machines[3].pods) == ("spot", 20)
    assert plan.prices == {"A100": Decimal("2.50"), "A100-spot": Decimal(1)}
    assert [(change.at, change.flavor) for change in plan.price_changes] == [(3600.0, "A100-spot"), (7200.0, "A100")]
    assert plan.interruptions == {"A100-spot": 0.05}
    often = read_fleet("f", FLEET.replace("spot: true", "spot: true, interruptions_per_hour: 0.5"))[0]
    assert often.interruptions == {"A100-spot": 0.5}
    assert (plan.member, plan.hints, plan.summary_seconds) == ("bestfit", False, None)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("member: bestfit", "member: best", "line 4, column 13: member is not one of spread, bestfit, pack"),
        ("member: bestfit", "color: red", "line 4, column 5: a cluster has no field 'color'"),
        ("hints: false", "hints: perhaps", "hints is neither true nor false"),
        ("hints: false", "name: west", "line 5, column 5: name appears twice"),
        ("count: 3", "count: -3", "line 7, column 26: count is not between 0 and"),
        ("count: 3", "count: 2.5", "count is not a whole number"),
        ("count: 3", "count: [3]", "count is not a plain value"),
        ("count: 3", "count: 200001", "count is not between"),
        ("cpu: 96.5", "cpu: NaN", "cpu is not between"),
        ("cpu: 96.5", "cpu: lots", "cpu is not a number: 'lots'"),
        ("gpus: 8, ", "", "gpus is missing"),
        ("name: s, ", "", "line 8, column 9: name is missing"),
        ("name: s, ", "name: a, ", "nodes has two nodes with the same name"),
        ("spot: true, price: 1", "price: 1", "price differs from an earlier one of flavor A100"),
        (
            "spot: true",
            "spot: true, interruptions_per_hour: 101",
            "line 8, column 103: interruptions_per_hour is not between 0 and 100",
        ),
        ("spot: true", "spot: true, interruptions_per_hour: often", "interruptions_per_hour is not a number"),
        (
            "gpus: 8, ",
            "gpus: 8, interruptions_per_hour: 1, ",
            "interruptions_per_hour is given for nodes that are not spot",
        ),
        (
            "spot: true, price: 1",
            "spot: true, price: 1}\n      - {name: t, model: A100, gpus: 4, cpu: 4, memory_gib: 5, spot: true, interruptions_per_hour: 2",
            "line 9, column 100: interruptions_per_hour differs from an earlier one of flavor A100-spot",
        ),
        ("model: A100, gpus: 8, ", "gpus: 8, ", "model is missing"),
        ("- {name: a,", "- 7\n      - {name: a,", "a group of nodes must have fields"),
        ("r{rack}", "{row}", "rack can contain {rack} and no other braces"),
        ("flavor: A100,", "flavor: H100,", "line 11, column 31: flavor is not one of the cluster's"),
        ("at_hours: 2", "at_hours: -2", "at_hours is not between"),
        ("nodes:", "nodes: &n", None),
        ("- name: east", "- name: [", "line 5"),
        ("- name: east", "- &x [*x]", "line 4"),
        ("  - name: east", "\t- name: east", "line 3, column 1"),
    ],
)
def test_a_bad_fleet_file_is_refused_with_line_and_column(old, new, told):
    text = FLEET.replace(old, new, 1)
    assert text != FLEET
    if told is None:
        assert read_fleet("f", text)
        return
    with pytest.raises(ReplayError) as caught:
        read_fleet("f", text)
    assert str(caught.value).startswith("f: line ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "[]", "clusters: []", "clusters: {}", "clusters:\n - 5", "---\n---\n", "clusters: &a [*a]", "x: 1",
        "clusters:\n- &c {name: a, nodes: [{name: n, cpu: 1, memory_gib: 1}]}\n- *c", "[" * 1000, "\x00",
        "clusters:\n- {name: a, nodes: [{name: n, cpu: 1, memory_gib: 1}]}\n- {name: a, nodes: [{name: n, cpu: 1, memory_gib: 1}]}",
        "clusters: !!python/object/apply:os.system [id]",
    ],
)  # fmt: skip
def test_what_is_no_fleet_is_refused(text):
    with pytest.raises(ReplayError, match=r"^f: line "):
        read_fleet("f", text)


@given(
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["clusters", "name", "nodes", "price", "cpu"]), inner, max_size=3)
        ),
    )
)
@examples(100)
def test_no_document_makes_the_fleet_reader_stumble(document):
    told = complaint(read_fleet, "f", yaml.safe_dump(document))
    assert not told or told.startswith("f: line ")


def test_percentiles_are_nearest_ranks():
    assert [percentile(range(1, 101), share) for share in (0.5, 0.95, 0.99, 1)] == [50, 95, 99, 100]
    assert percentile([], 0.5) == 0
    assert spread_of([]) == {"mean": 0.0, "p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}


def test_a_curve_is_averaged_over_equal_slots():
    curve = Curve(4)
    curve.add(0, 10, 8, 0)
    curve.add(10, 30, 0, 2)
    curve.add(30, 40, 4, 1)
    assert curve.means() == [(10.0, 8.0, 0.0), (20.0, 0.0, 2.0), (30.0, 0.0, 2.0), (40.0, 4.0, 1.0)]
    assert Curve(4).means() == []


def test_charts_hold_no_markup_of_names_and_survive_nothing():
    told = '<script>&"'
    for chart in (
        lines(told, {told: []}, str, str),
        distribution(told, {told: [0.0, 5.0]}, str),
        bars(told, [told], {told: [0.0]}, str),
    ):
        assert "<script" not in chart
        assert "nan" not in chart.lower()


def test_an_alias_in_a_fleet_file_is_refused_where_it_is_used_twice():
    twice = FLEET.replace('price: "2.50"', "price: &p 1").replace("spot: true, price: 1", "spot: true, price: *p")
    assert "aliases are not supported" in complaint(read_fleet, "f", twice)
