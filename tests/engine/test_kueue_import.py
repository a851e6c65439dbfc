"""Manifests of Kueue as a tree file: the same quota is available as in Kueue, and nothing is left out silently."""

from random import Random
from uuid import UUID

import pytest
import yaml

from federation.engine.intake.reading import Refused
from federation.engine.tree.items import Key, Kind
from federation.engine.tree.kueue import import_kueue
from federation.engine.tree.kueue_reading import Amounts
from federation.engine.tree.reading import read_tree
from quotas.engine.amounts import parse_amount
from quotas.engine.borrowing import Book, left
from quotas.engine.holds import Limit, bound, parents, recounted


def manifest(kind, name, version="v1beta2", namespace=None, **spec):
    names = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": names, "spec": spec}


def quota(nominal, borrow=None, lend=None, resource="nvidia.com/gpu", flavor="h100"):
    given = {"name": resource, "nominalQuota": nominal, "borrowingLimit": borrow, "lendingLimit": lend}
    own = {name: value for name, value in given.items() if value is not None}
    return [{"coveredResources": [resource], "flavors": [{"name": flavor, "resources": [own]}]}]


def imported(*objects, **options):
    return import_kueue([("all.yaml", yaml.safe_dump_all(objects))], **options)


def limits_of(text):
    """The limits of the file as the engine's values, with nothing held."""
    wanted = read_tree(text)
    found = []
    for number, (key, value) in enumerate(wanted.items.items()):
        if key.kind is Kind.LIMIT:
            nominal, borrow, lend = (
                None if value[name] is None else parse_amount("gpu", value[name])
                for name in ("nominal", "borrowing_limit", "lending_limit")
            )
            guaranteed = 0 if lend is None else max(0, nominal - lend)
            found.append(Limit(UUID(int=number), key.tenant, "gpu", (), nominal, 0, 0, borrow, guaranteed))
    return found


class Resource:
    """A node of Kueue's cohort tree by its documented arithmetic: what it adds to its parent is what it may lend."""

    def __init__(self, name, own, borrow, lend, parent):
        self.name, self.own, self.borrow, self.lend, self.parent, self.usage = name, own, borrow, lend, parent, 0
        self.members = []
        if parent:
            parent.members.append(self)

    @property
    def subtree(self):
        return self.own + sum(one.subtree - one.local for one in self.members)

    @property
    def local(self):
        return 0 if self.lend is None else max(0, self.subtree - self.lend)

    def available(self):
        if self.parent is None:
            return self.subtree - self.usage
        in_parent = self.parent.available()
        if self.borrow is not None:
            used = max(0, self.usage - self.local)
            in_parent = min(self.subtree - self.local - used + self.borrow, in_parent)
        return max(0, self.local - self.usage) + in_parent

    def add(self, amount):
        kept = max(0, self.local - self.usage)
        self.usage += amount
        if self.parent and amount > kept:
            self.parent.add(amount - kept)


def random_cohorts(chance):
    """A tree of cohorts with queues, and its manifests."""
    bounds = [None, None, 0, 1, 3, 9]
    nodes = [Resource("root", chance.randint(0, 9), None, None, None)]
    objects = [manifest("Cohort", "root", resourceGroups=quota(nodes[0].own))]
    for number in range(chance.randint(1, 8)):
        cohorts = [one for one in nodes if not one.name.startswith("q")]
        above, is_queue = chance.choice(cohorts), chance.random() < 0.6
        node = Resource(
            f"{'q' if is_queue else 'c'}{number}",
            chance.randint(0, 9),
            chance.choice(bounds),
            chance.choice(bounds),
            above,
        )
        kind, parent = ("ClusterQueue", "cohortName") if is_queue else ("Cohort", "parentName")
        spec = {parent: above.name, "resourceGroups": quota(node.own, node.borrow, node.lend)}
        objects.append(manifest(kind, node.name, **spec))
        nodes.append(node)
    return nodes, objects


@pytest.mark.oracle
def test_the_file_has_available_what_kueue_has_on_random_trees():
    chance = Random(79)
    borrowed = lent = 0
    for _ in range(150):
        nodes, objects = random_cohorts(chance)
        limits = limits_of(imported(*objects).text)
        by_name = {limit.tenant_path.rpartition("/")[2]: limit for limit in limits}
        used = {}
        for _ in range(chance.randint(0, 5)):
            node = chance.choice([one for one in nodes if not one.members])
            amount = chance.randint(0, max(0, node.available()))
            node.add(amount)
            used[by_name[node.name].id] = used.get(by_name[node.name].id, 0) + amount * 1000
        now = recounted(limits, used)
        book = Book(now)
        for node in nodes:
            limit = next(one for one in now if one.id == by_name[node.name].id)
            assert left(book.chain(limit)) == node.available() * 1000, node.name
            borrowed += limit.held > limit.nominal
            lent += node.lend is not None and node.local < node.subtree
        above = parents(now)
        assert all(one.held <= bound(one, has_parent=above[one.id] is not None) for one in now)
    assert min(borrowed, lent) > 20


def test_kueues_example_of_two_teams_that_lend():
    """Its documentation: team A has 9 CPUs, team B 12 of which it lends 1, so team A may use 10."""
    objects = [
        manifest("ClusterQueue", "team-a-cq", cohortName="team-ab", resourceGroups=quota(9, resource="cpu")),
        manifest("ClusterQueue", "team-b-cq", cohortName="team-ab", resourceGroups=quota(12, lend=1, resource="cpu")),
    ]
    items = read_tree(imported(*objects, below="acme").text).items
    limits = {
        key.tenant: (value["nominal"], value["borrowing_limit"], value["lending_limit"])
        for key, value in items.items()
        if key.kind is Kind.LIMIT
    }
    assert limits == {
        "acme/team-ab": ("21", "0", None),
        "acme/team-ab/team-a-cq": ("9", None, None),
        "acme/team-ab/team-b-cq": ("12", None, "1"),
    }


def test_everything_else_becomes_an_equal_or_a_warning():
    queue = manifest(
        "ClusterQueue", "team.a", "v1beta1", cohort="lab", namespaceSelector={"matchLabels": {"a": "b"}},
        queueingStrategy="StrictFIFO", stopPolicy="Hold", fairSharing={"weight": "750m"}, flavorFungibility={"whenCanBorrow": "Borrow"},
        preemption={"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Never"}},
        admissionChecks=["check"], surprise=1,
        resourceGroups=[*quota(4), *quota(2, flavor="other"), *quota(9, resource="pods"), *quota("1Gi", resource="memory", flavor="any")],
    )  # fmt: skip
    flavor = manifest(
        "ResourceFlavor",
        "h100",
        nodeLabels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "zone": "x"},
        topologyName="t",
    )
    urgent = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 10**7,
        "description": "Now.",
    }
    local = manifest("LocalQueue", "users", namespace="vision", clusterQueue="team.a")
    lost = manifest("LocalQueue", "lost", namespace="vision", clusterQueue="nowhere")
    found = imported(
        {"apiVersion": "v1", "kind": "List", "items": [queue, flavor, local, lost]}, urgent, manifest("Topology", "t")
    )
    items = read_tree(found.text).items
    assert items[Key(Kind.LIMIT, "lab/team-a", "gpu:H100-80GB")]["nominal"] == "4"
    assert items[Key(Kind.LIMIT, "lab/team-a", "gpu")]["nominal"] == "2"
    assert items[Key(Kind.LIMIT, "lab/team-a", "memory")]["nominal"] == "1Gi"
    assert items[Key(Kind.LIMIT, "lab/team-a", "jobs")]["nominal"] == "0"
    assert items[Key(Kind.WEIGHT, "lab/team-a")] == {"weight": "0.75"}
    assert items[Key(Kind.TENANT, "lab/team-a/vision")] == {"kind": "project"}
    urgent_here = items[Key(Kind.PRIORITY_CLASS, "", "urgent")]
    assert (urgent_here["value"], urgent_here["preempts"], urgent_here["is_open"]) == (10**6, "lower", True)
    told = "\n".join(found.warnings)
    for word in (
        "its tenant is named team-a", "namespaceSelector", "queueingStrategy StrictFIFO", "flavorFungibility", "preemption.reclaimWithinCohort Any",
        "admissionChecks", "surprise", "the quota of pods", "nodeLabels.zone", "topologyName", "value 10000000 becomes 1000000",
        "LocalQueue vision/lost", "Topology t",
    ):  # fmt: skip
        assert word in told
    assert "borrowWithinCohort" not in told
    assert found.text.count("# warning: ") == len(found.warnings)


@pytest.mark.parametrize(
    ("objects", "code", "told"),
    [
        ([manifest("Cohort", "a", parentName="b"), manifest("Cohort", "b", parentName="a")], "not_allowed", "circle of parents"),
        ([manifest("ClusterQueue", "a"), manifest("ClusterQueue", "a")], "bad_manifest", "all.yaml, line 10, column 3"),
        ([manifest("ClusterQueue", "../a")], "bad_manifest", "all.yaml, line 3, column 1: metadata must have a name"),
        ([manifest("ClusterQueue", "a", resourceGroups=quota("many"))], "bad_manifest", "is not an amount"),
        ([manifest("ClusterQueue", "a", resourceGroups={})], "bad_manifest", "must be a list"),
        ([], "required", "no ClusterQueue"),
        ([*(manifest("Cohort", f"c{n}", parentName=f"c{n - 1}" if n else "") for n in range(17))], "too_deep", "deeper than 16"),
        (["text"], "bad_manifest", "must be a mapping"),
        ([manifest("ClusterQueue", "a"), manifest("WorkloadPriorityClass", "a.b") | {"value": 1}], "bad_format", "WorkloadPriorityClass a.b: a class's name"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_with_its_place(objects, code, told):
    with pytest.raises(Refused) as refused:
        imported(*objects)
    assert told in str(refused.value)
    [fault] = refused.value.faults
    assert fault.code == code
    assert (fault.field == "") == (code != "bad_manifest" or objects == ["text"])


def test_a_cohort_may_be_sixteen_levels_deep_and_less_below_a_tenant():
    cohorts = [manifest("Cohort", f"c{n}", parentName=f"c{n - 1}" if n else "") for n in range(16)]
    assert len(read_tree(imported(*cohorts).text).items) == 16
    with pytest.raises(Refused):
        imported(*cohorts, below="acme")
    assert len(read_tree(imported(*cohorts[:15], below="acme").text).items) == 15


@pytest.mark.parametrize("below", ["Acme", "acme/", "/acme", "acme//a", f"acme/{'a' * 64}"])
def test_a_tree_is_put_only_below_a_tenant(below):
    with pytest.raises(Refused) as refused:
        imported(manifest("ClusterQueue", "a"), below=below)
    assert [(fault.field, fault.code) for fault in refused.value.faults] == [("below", "bad_format")]


def test_names_that_are_no_names_of_tenants_are_changed_and_told_once():
    found = imported(*(manifest("ClusterQueue", name) for name in ("a.b", "a-b", f"{'x' * 70}")))
    tenants = [key.tenant for key in read_tree(found.text).items]
    assert tenants == ["a-b", "a-b-2", "x" * 55]
    assert [one for one in found.warnings if "its tenant is named" in one] == [
        "ClusterQueue a.b: its tenant is named a-b", "ClusterQueue a-b: its tenant is named a-b-2",
        f"ClusterQueue {'x' * 70}: its tenant is named {'x' * 55}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "kept"), [(10**6, 10**6), (10**6 + 1, 10**6), (-(10**6), -(10**6)), (-(10**6) - 1, -(10**6))]
)
def test_a_class_has_a_value_within_a_million(value, kept):
    found = imported(manifest("ClusterQueue", "a"), manifest("WorkloadPriorityClass", "high") | {"value": value})
    [item] = [item for key, item in read_tree(found.text).items.items() if key.kind is Kind.PRIORITY_CLASS]
    assert (item["value"], any("becomes" in one for one in found.warnings)) == (kept, value != kept)


def test_two_quotas_together_borrow_and_lend_what_both_may():
    bounded, lends = Amounts(8, borrow=2, lend=3), Amounts(4, borrow=1, lend=9)
    assert bounded.plus(lends) == Amounts(12, borrow=3, lend=3 + 4)
    assert bounded.plus(Amounts(4, borrow=None)) == Amounts(12, borrow=None, lend=3 + 4)
    assert Amounts(8, borrow=2).plus(Amounts(4)) == Amounts(12)


def test_fields_of_the_version_before_name_the_same_parents():
    """There a queue names its `cohort`, and a cohort its `parent`."""

    def tenants(version, cohort, parent):
        objects = [
            manifest("Cohort", "lab", version, resourceGroups=quota(8)),
            manifest("Cohort", "vision", version, **{parent: "lab"}),
            manifest("ClusterQueue", "team", version, **{cohort: "vision"}),
        ]
        return {key.tenant for key in read_tree(imported(*objects).text).items if key.kind is Kind.TENANT}

    assert tenants("v1beta1", "cohort", "parent") == tenants("v1beta2", "cohortName", "parentName")
    assert "lab/vision/team" in tenants("v1beta1", "cohort", "parent")


def test_a_local_queue_is_a_project_with_its_own_weight_and_stop():
    queue = manifest("ClusterQueue", "team", cohortName="lab")
    local = [
        manifest("LocalQueue", "main", namespace="vision", clusterQueue="team", fairSharing={"weight": "0.5"}),
        manifest("LocalQueue", "more", namespace="vision", clusterQueue="team", stopPolicy="HoldAndDrain"),
        manifest("LocalQueue", "main", namespace="speech", clusterQueue="team", fairSharing={"weight": 1}),
    ]
    found = imported(queue, *local)
    items = read_tree(found.text).items
    projects = {key.tenant for key, value in items.items() if key.kind is Kind.TENANT and value["kind"] == "project"}
    assert projects == {"lab/team/vision", "lab/team/vision-more", "lab/team/speech"}
    assert {key.tenant: value for key, value in items.items() if key.kind is Kind.WEIGHT} == {
        "lab/team/vision": {"weight": "0.5"}
    }
    stopped = {key.tenant: value for key, value in items.items() if key.kind is Kind.LIMIT and key.name == "jobs"}
    assert stopped == {
        "lab/team/vision-more": {
            "resource": "jobs", "clusters": [], "nominal": "0", "borrowing_limit": "0", "lending_limit": None,
            "reclaims": False, "reclaim_after": None,
        }
    }  # fmt: skip
    assert any("HoldAndDrain" in one for one in found.warnings)


@pytest.mark.parametrize(
    ("weight", "kept", "is_told"),
    [
        ("0.01", "0.01", False),
        ("0.001", "0.01", True),
        ("1000", "1000", False),
        ("1001", "1000", True),
        ("0.125", "0.12", True),
    ],
)
def test_a_weight_is_kept_within_its_bounds_or_told(weight, kept, is_told):
    found = imported(manifest("ClusterQueue", "a", fairSharing={"weight": weight}))
    assert read_tree(found.text).items[Key(Kind.WEIGHT, "a")] == {"weight": kept}
    assert any("becomes" in one for one in found.warnings) is is_told


def test_labels_of_cohorts_and_queues_become_labels_of_their_tenants():
    cohort, queue = manifest("Cohort", "lab"), manifest("ClusterQueue", "team", cohortName="lab")
    cohort["metadata"]["labels"] = {"site": "north", "example.org/cost-centre": "7"}
    queue["metadata"]["labels"] = {"owner": "ann", "bad label": "x", "number": 1}
    found = imported(cohort, queue)
    items = read_tree(found.text).items
    assert {key.tenant: value for key, value in items.items() if key.kind is Kind.LABELS} == {
        "lab": {"labels": {"site": "north", "example.org/cost-centre": "7"}},
        "lab/team": {"labels": {"owner": "ann"}},
    }
    assert [one for one in found.warnings if "is not a label here" in one] == [
        "ClusterQueue team: its label bad label is not a label here; it is left out",
        "ClusterQueue team: its label number is not a label here; it is left out",
    ]
