"""Hypothesis strategies for anything a user may validly ask for."""

from typing import Any

from hypothesis import strategies as st

letters = "abcdefghijklmnopqrstuvwxyz"
dns_labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
models = st.lists(st.sampled_from(["H100-80GB", "A100-80GB", "MI300X", "L4"]), max_size=3)
texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30)
env_names = st.from_regex(r"[A-KM-Z_][A-Z0-9_]{0,10}", fullmatch=True).filter(
    lambda name: not name.startswith(("LD_", "SWITCHYARD_", "NVIDIA_", "KUBERNETES_", "AMD_"))
)
gpus = st.one_of(
    st.none(),
    st.fixed_dictionaries({"count": st.integers(1, 64)}, optional={"models": models}),
    st.fixed_dictionaries(
        {"mig": st.sampled_from(["1g.10gb", "3g.40gb", "1g.5gb+me"])},
        optional={"count": st.integers(1, 7), "models": models},
    ),
    st.fixed_dictionaries({"fraction": st.integers(1, 999).map(lambda n: f"0.{n:03d}")}, optional={"models": models}),
)
beside: dict[str, st.SearchStrategy[Any]] = {
    "command": st.lists(texts, max_size=2),
    "env": st.dictionaries(env_names, texts, max_size=2),
}
init_steps = st.fixed_dictionaries(
    {"image": st.just("fetch")}, optional={**beside, "cpu": st.just("100m"), "memory": st.just("1Mi")}
)
sidecars = st.fixed_dictionaries(
    {
        "name": dns_labels.map(lambda name: f"side-{name}"),
        "image": st.just("shipper:2"),
        "cpu": st.sampled_from(["1m", "1500m"]),
        "memory": st.sampled_from(["1Mi", "1.5Gi", "1048577"]),
    },
    optional=beside,
)
pod_sets = st.fixed_dictionaries(
    {
        "name": dns_labels,
        "image": st.sampled_from(["python", "library/python:3.12", "registry.example:5000/a/b@sha256:" + "ab" * 32]),
        "cpu": st.sampled_from(["1", "500m", "0.25", "16", "1e1", "1024"]),
        "memory": st.sampled_from(["1Gi", "1.5Gi", "1048576", "64M", "1.25G", "2Ti", "1e9"]),
    },
    optional={
        "count": st.integers(1, 10_000),
        "command": st.lists(texts, max_size=3),
        "args": st.lists(texts, max_size=3),
        "env": st.dictionaries(env_names, texts, max_size=4),
        "gpu": gpus,
        "init": st.lists(init_steps, max_size=2),
        "sidecars": st.lists(sidecars, max_size=2, unique_by=lambda one: one["name"]),
    },
)
regions = st.lists(st.sampled_from(["eu-*", "us-east-1", "*"]), max_size=2)
tiers = st.lists(
    st.fixed_dictionaries({}, optional={"clusters": st.lists(dns_labels, max_size=3), "regions": regions}), max_size=8
).map(lambda found: [{"after_seconds": 600 * number, **tier} for number, tier in enumerate(found)])
datasets = st.fixed_dictionaries(
    {"name": dns_labels}, optional={"read": st.none() | st.sampled_from(["1Gi", "1.5Gi", "7", "3T", "1Ei"])}
)
speeds = st.one_of(st.integers(1, 1000), st.decimals("0.001", 1000, places=3).map(float))
label_keys = st.one_of(dns_labels, dns_labels.map(lambda name: f"team.example/{name}"))
required: dict[str, st.SearchStrategy[Any]] = {
    "name": dns_labels,
    "pod_sets": st.lists(pod_sets, min_size=1, max_size=4, unique_by=lambda pods: pods["name"]),
}
specs = st.fixed_dictionaries(
    required,
    optional={
        "deadline_seconds": st.integers(1, 30 * 24 * 3600),
        "estimated_seconds": st.one_of(st.none(), st.integers(1, 30 * 24 * 3600)),
        "checkpoint_seconds": st.one_of(st.none(), st.integers(1, 30 * 24 * 3600)),
        "priority_class": st.sampled_from(["low", "normal", "high"]),
        "strategy": st.sampled_from(["cheapest", "soonest", "pack", "spread", "balanced"]),
        "on_cluster_lost": st.just("hold"),
        "moves": st.sampled_from(["never", "when_needed", "when_cheaper"]),
        "finish_within_seconds": st.integers(1, 30 * 24 * 3600),
        "topology": st.fixed_dictionaries(
            {},
            optional={
                "level": st.sampled_from(["cluster", "zone", "rack", "node"]),
                "mode": st.sampled_from(["required", "preferred"]),
            },
        ),
        "constraints": st.fixed_dictionaries(
            {},
            optional={
                "clusters": st.lists(dns_labels, max_size=3),
                "exclude_clusters": st.lists(dns_labels, max_size=3),
                "regions": regions,
                "capacity_types": st.lists(st.sampled_from(["on_demand", "spot", "reserved"]), max_size=3),
                "overflow": tiers,
            },
        ),
        "labels": st.dictionaries(label_keys, dns_labels, max_size=4),
        "data": st.lists(datasets, max_size=4, unique_by=lambda one: one["name"]),
        "throughput": st.dictionaries(dns_labels, speeds, max_size=4),
    },
)
