import pytest

from devtools.localfleet import SMALL_FLEET, start_fleet
from devtools.localfleet.controlplane import StartFailed
from devtools.localfleet.devices import resource_slices
from devtools.localfleet.fleet import choose
from devtools.localfleet.fleetfile import BadFleetFile, ClusterSpec, NodeGroup, node_objects, read_fleet
from devtools.localfleet.kubelet import RUNS_LABEL


def only_node(group, provider="aws"):
    (node,) = node_objects(ClusterSpec("c", "r1", provider, (group,)))
    return node["metadata"]["labels"], node["status"]["allocatable"]


def test_the_small_fleet_holds_a_gang_of_8_by_8_in_one_rack_and_every_kind_of_node():
    fleet = {spec.name: list(node_objects(spec)) for spec in read_fleet(SMALL_FLEET)}
    assert list(fleet) == ["east", "west", "north"]
    racks = [
        node["metadata"]["labels"]["cloud.provider.com/topology-rack"]
        for node in fleet["east"]
        if node["status"]["allocatable"].get("nvidia.com/gpu") == "8"
    ]
    assert racks == ["r1"] * 8 + ["r2"] * 8
    resources = {name for nodes in fleet.values() for node in nodes for name in node["status"]["allocatable"]}
    assert {"nvidia.com/mig-1g.10gb", "amd.com/gpu", "nvidia.com/gpu", "cpu"} <= resources


def test_whole_nvidia_gpus_bear_what_feature_discovery_says():
    labels, allocatable = only_node(
        NodeGroup("h", 1, 192, 2048, "nvidia", "NVIDIA-H100-80GB-HBM3", gpus=8, gpu_memory_mib=81559)
    )
    assert allocatable == {"cpu": "192000m", "memory": "2097152Mi", "pods": "110", "nvidia.com/gpu": "8"}
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["nvidia.com/gpu.memory"] == "81559"
    assert labels["nvidia.com/gpu.family"] == "hopper"
    assert labels["nvidia.com/mig.capable"] == "true"


def test_mig_nodes_offer_profiles_and_no_whole_gpu():
    group = NodeGroup(
        "m", 1, 96, 512, "nvidia", "NVIDIA-A100-SXM4-80GB", 8, 81920, mig={"1g.10gb": 28, "1g.10gb+me": 8}
    )
    labels, allocatable = only_node(group)
    assert allocatable["nvidia.com/gpu"] == "0"
    assert allocatable["nvidia.com/mig-1g.10gb"] == "28"
    assert allocatable["nvidia.com/mig-1g.10gb.me"] == "8"
    assert labels["nvidia.com/mig.strategy"] == "mixed"
    assert labels["nvidia.com/mig-1g.10gb.product"] == "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"
    assert labels["nvidia.com/mig-1g.10gb.memory"] == "10240"


def test_time_sliced_gpus_count_their_replicas():
    labels, allocatable = only_node(NodeGroup("t", 1, 48, 192, "nvidia", "Tesla-T4", 4, 15360, timeslice=4))
    assert allocatable["nvidia.com/gpu"] == "16"
    assert labels["nvidia.com/gpu.product"] == "Tesla-T4-SHARED"
    assert labels["nvidia.com/gpu.replicas"] == "4"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "time-slicing"


@pytest.mark.parametrize(
    ("provider", "label"),
    [
        ("aws", ("eks.amazonaws.com/capacityType", "SPOT")),
        ("gcp", ("cloud.google.com/gke-spot", "true")),
        ("azure", ("kubernetes.azure.com/scalesetpriority", "spot")),
        ("onprem", ("karpenter.sh/capacity-type", "spot")),
    ],
)
def test_spot_nodes_are_labelled_as_their_cloud_does(provider, label):
    labels, _ = only_node(NodeGroup("s", 1, 8, 32, spot=True), provider)
    assert label in labels.items()


def test_amd_and_google_nodes_bear_their_own_labels():
    labels, allocatable = only_node(NodeGroup("a", 1, 8, 32, "amd", "AMD_Instinct_MI300X_OAM", 8, 196608))
    assert allocatable["amd.com/gpu"] == "8"
    assert (labels["amd.com/gpu.product-name"], labels["amd.com/gpu.vram"]) == ("AMD_Instinct_MI300X_OAM", "192G")
    labels, allocatable = only_node(NodeGroup("g", 1, 8, 32, "google", "nvidia-l4", 4, 23034))
    assert allocatable["nvidia.com/gpu"] == "4"
    assert labels["cloud.google.com/gke-accelerator"] == "nvidia-l4"
    labels, allocatable = only_node(NodeGroup("p", 1, 8, 32, "google", "tpu-v5-lite-podslice", 4, 16384))
    assert allocatable["google.com/tpu"] == "4"


def test_fractions_of_cores_and_gibibytes_are_kept():
    _, allocatable = only_node(NodeGroup("c", 1, 0.5, 1.5))
    assert (allocatable["cpu"], allocatable["memory"]) == ("500m", "1536Mi")


def test_clusters_are_chosen_by_number_past_the_files_end_or_by_name():
    specs = [ClusterSpec("a", "ra"), ClusterSpec("b", "rb")]
    assert [spec.name for spec in choose(5, specs)] == ["a", "b", "a-2", "b-2", "a-3"]
    assert [(spec.name, spec.region) for spec in choose(["b", "new"], specs)] == [("b", "rb"), ("new", "ra")]


@pytest.mark.parametrize(
    "text",
    ["", "clusters: 3", "clusters: [{name: a, colour: red}]", "clusters: [{name: a, nodes: [{name: n}]}]", ":::"],
)
def test_a_fleet_file_with_a_fault_is_refused_by_its_path(tmp_path, text):
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(BadFleetFile, match=str(path)):
        read_fleet(path)


def test_nodes_that_run_pods_are_labelled_for_the_test_kubelet_and_left_unready_for_it():
    runs, pretends = (
        next(node_objects(ClusterSpec("c", groups=(NodeGroup("g", 1, 8, 32, runs=value),)))) for value in (True, False)
    )
    assert runs["metadata"]["labels"][RUNS_LABEL] == "true"
    assert RUNS_LABEL not in pretends["metadata"]["labels"]
    assert [bool(node["status"]["conditions"]) for node in (runs, pretends)] == [False, True]
    (cluster,) = read_fleet(SMALL_FLEET.with_name("running.yaml"))
    assert cluster.runs_pods
    assert not any(spec.runs_pods for spec in read_fleet(SMALL_FLEET))


def test_nodes_that_run_pods_need_root(monkeypatch, tmp_path):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("devtools.localfleet.fleet.locate", lambda _names: {})
    with pytest.raises(StartFailed, match="need root"):
        start_fleet(1, tmp_path, fleet_file=SMALL_FLEET.with_name("running.yaml"))


def published(group):
    return list(resource_slices(ClusterSpec("c", "r1", "aws", (group,))))


def test_claimed_gpus_are_published_and_neither_labelled_nor_announced():
    group = NodeGroup("h", 2, 192, 2048, "nvidia", "NVIDIA-H100-80GB-HBM3", gpus=8, gpu_memory_mib=81559, claimed=True)
    first, _ = node_objects(ClusterSpec("c", "r1", "aws", (group,)))
    assert set(first["status"]["allocatable"]) == {"cpu", "memory", "pods"}
    assert not [key for key in first["metadata"]["labels"] if key.startswith("nvidia.com/")]
    one, two = published(group)
    assert (one["spec"]["nodeName"], two["spec"]["nodeName"]) == ("h-000", "h-001")
    assert [device["name"] for device in one["spec"]["devices"]] == [f"gpu-{number}" for number in range(8)]
    assert one["spec"]["devices"][0]["attributes"] == {
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "type": {"string": "gpu"},
    }


def test_claimed_parts_and_other_vendors_are_published_by_their_drivers():
    parts = NodeGroup("m", 1, 96, 512, "nvidia", "NVIDIA-A100-SXM4-80GB", 8, 81920, mig={"1g.10gb": 2}, claimed=True)
    [found] = published(parts)
    assert [device["attributes"]["profile"]["string"] for device in found["spec"]["devices"]] == ["1g.10gb"] * 2
    [found] = published(NodeGroup("a", 1, 96, 512, "amd", "AMD_Instinct_MI300X_OAM", 8, 196608, claimed=True))
    assert found["spec"]["driver"] == "gpu.amd.com"
    assert published(NodeGroup("h", 1, 96, 512, "nvidia", "NVIDIA-L4", 4, 23034)) == []
