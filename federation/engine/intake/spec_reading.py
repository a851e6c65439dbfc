"""The job spec, read from untrusted JSON.

Reading is strict and complete: every field is typed, bounded and checked against a grammar, and a refusal names all
fields at fault. `read_spec(spec_json(spec), rules) == spec`.
"""

from collections.abc import Callable

from federation.engine import names
from placement.fleet.policies import STRATEGY_NAMES
from placement.values.model import LEVELS, Constraints, GpuRequest, Tier, Topology
from placement.values.quantities import NotAQuantity, cpu_text, memory_text, millicores, whole_bytes

from .reading import Faults, Fields, child, text_fault
from .spec import (
    CAPACITY_TYPES,
    CONSTRAINT_FIELDS,
    DEFAULT_DEADLINE_SECONDS,
    DNS_LABEL,
    GPU_FIELDS,
    GPU_VENDORS,
    JOB_FIELDS,
    LONGEST_BOUNDED_PART,
    LONGEST_ESCAPE,
    LONGEST_ITEM,
    MAX_ARGUMENT_BYTES,
    MAX_ARGUMENTS,
    MAX_COMPLETIONS,
    MAX_COUNT,
    MAX_CPU_MILLICORES,
    MAX_ENVIRONMENT,
    MAX_ENVIRONMENT_BYTES,
    MAX_GPUS_PER_POD,
    MAX_LABELS,
    MAX_MEMORY_BYTES,
    MAX_POD_SETS,
    MAX_SECONDS,
    MAX_SPEC_BYTES,
    MAX_TIERS,
    MIN_CPU_MILLICORES,
    MIN_MEMORY_BYTES,
    ON_CLUSTER_LOST,
    POD_SET_FIELDS,
    PRIORITIES,
    TIER_FIELDS,
    TOPOLOGY_FIELDS,
    WHOLE_GPU_MILLI,
    JobSpec,
    PodSet,
    Rules,
    encode,
    spec_json,
)
from .work_reading import read_data, read_retries, read_throughput


def read_spec(value: object, rules: Rules) -> JobSpec:
    """The spec in a JSON object (without its tenant). Raises Refused with every field at fault."""
    faults = Faults()
    fields = Fields(value, "", faults, JOB_FIELDS)
    name = fields.checked("name", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
    pod_sets = tuple(
        _read_pod_set(item, f"pod_sets[{index}]", faults, rules)
        for index, item in enumerate(fields.array("pod_sets", least=1, most=MAX_POD_SETS))
    )
    _check_pod_set_names(pod_sets, fields)
    deadline_seconds = fields.whole("deadline_seconds", 1, MAX_SECONDS, DEFAULT_DEADLINE_SECONDS)
    spec = JobSpec(
        name=name,
        pod_sets=pod_sets,
        completions=_read_completions(fields, pod_sets),
        deadline_seconds=deadline_seconds or DEFAULT_DEADLINE_SECONDS,
        estimated_seconds=fields.whole("estimated_seconds", 1, MAX_SECONDS),
        checkpoint_seconds=fields.whole("checkpoint_seconds", 1, MAX_SECONDS),
        priority_class=fields.choice("priority_class", PRIORITIES, "normal"),
        constraints=_read_constraints(fields),
        topology=_read_topology(fields),
        strategy=fields.choice("strategy", STRATEGY_NAMES, "balanced"),
        on_cluster_lost=fields.choice("on_cluster_lost", ON_CLUSTER_LOST, "hold"),
        labels=_read_labels(fields, rules),
        data=read_data(fields),
        throughput=read_throughput(fields),
        retries=read_retries(fields),
    )
    faults.refuse_if_any()
    _check_size(spec, faults)
    return spec


def _check_pod_set_names(pod_sets: tuple[PodSet, ...], fields: Fields) -> None:
    seen: set[str] = set()
    for index, pod_set in enumerate(pod_sets):
        if pod_set.name and pod_set.name in seen:
            fields.fault(f"pod_sets[{index}].name", "duplicate", "another pod set has this name")
        seen.add(pod_set.name)


def _check_size(spec: JobSpec, faults: Faults) -> None:
    """Checks the size of the spec in its normal form, so that no object exceeds the limit of API servers."""
    if _rough_size(spec) > MAX_SPEC_BYTES and len(encode(spec_json(spec))) > MAX_SPEC_BYTES:
        faults.add("", "too_large", f"the whole spec may have at most {MAX_SPEC_BYTES} bytes")
        faults.refuse_if_any()


def _rough_size(spec: JobSpec) -> int:
    """An upper bound of the size in bytes: every character as an escape, and the maximum for all bounded fields."""
    texts = 0
    for pod_set in spec.pod_sets:
        texts += 2 * LONGEST_BOUNDED_PART + sum(map(len, pod_set.command)) + sum(map(len, pod_set.args))
        texts += sum(len(name) + len(value) for name, value in pod_set.env)
        texts += 2 * (len(pod_set.command) + len(pod_set.args) + 2 * len(pod_set.env))
    named = spec.constraints.clusters + spec.constraints.exclude_clusters + spec.constraints.regions
    for tier in spec.constraints.overflow:
        named += tier.clusters + tier.regions
        texts += LONGEST_BOUNDED_PART
    texts += sum(len(need.name) + LONGEST_ITEM for need in spec.data)
    texts += sum(len(one.model) + LONGEST_ITEM for one in spec.throughput)
    texts += sum(map(len, named)) + sum(len(key) + len(value) for key, value in spec.labels)
    texts += 4 * (len(named) + len(spec.labels)) + 2 * LONGEST_BOUNDED_PART
    return texts * LONGEST_ESCAPE


def _read_completions(fields: Fields, pod_sets: tuple[PodSet, ...]) -> int | None:
    completions = fields.whole("completions", 1, MAX_COMPLETIONS)
    if completions is not None and len(pod_sets) > 1:
        fields.fault("completions", "not_allowed", "only a job with one pod set may have completions")
    elif completions is not None and pod_sets and completions < pod_sets[0].count:
        fields.fault("completions", "out_of_range", "must be at least the pod set's count")
    return completions


def _read_pod_set(value: object, path: str, faults: Faults, rules: Rules) -> PodSet:
    fields = Fields(value, path, faults, POD_SET_FIELDS)
    before = len(faults.found)
    image = fields.text("image", most_bytes=512)
    is_read = len(faults.found) == before
    fault = names.image_fault(image, require_digest=rules.require_digest) if is_read else None
    if fault is not None:
        fields.fault("image", *fault)
    return PodSet(
        name=fields.checked("name", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL),
        count=fields.whole("count", 1, MAX_COUNT, 1) or 1,
        image=image,
        cpu_millicores=_read_cpu(fields),
        memory_bytes=_read_memory(fields),
        command=fields.texts("command", most=MAX_ARGUMENTS, most_bytes=MAX_ARGUMENT_BYTES),
        args=fields.texts("args", most=MAX_ARGUMENTS, most_bytes=MAX_ARGUMENT_BYTES),
        env=_read_environment(fields),
        gpu=_read_gpu(fields),
    )


def _read_cpu(fields: Fields) -> int:
    return _read_amount(fields, "cpu", millicores, cpu_text, MIN_CPU_MILLICORES, MAX_CPU_MILLICORES)


def _read_memory(fields: Fields) -> int:
    return _read_amount(fields, "memory", whole_bytes, memory_text, MIN_MEMORY_BYTES, MAX_MEMORY_BYTES)


def _read_amount(
    fields: Fields, name: str, parse: Callable[[str], int], shown: Callable[[int], str], least: int, most: int
) -> int:
    """A required quantity within bounds, in the base unit of `parse`."""
    text = fields.quantity(name)
    try:
        amount = parse(text) if text else least
    except NotAQuantity as error:
        fields.fault(name, "bad_quantity", str(error))
        return least
    if not least <= amount <= most:
        fields.fault(name, "out_of_range", f"must be between {shown(least)} and {shown(most)}")
    return amount


def _read_environment(fields: Fields) -> tuple[tuple[str, str], ...]:
    values = fields.mapping("env")
    if not values:
        return ()
    path = fields.at("env")
    if len(values) > MAX_ENVIRONMENT:
        fields.fault("env", "too_many", f"must have at most {MAX_ENVIRONMENT} variables")
        return ()
    total_bytes = 0
    for name, value in values.items():
        fault = names.environment_fault(name) or text_fault(value, MAX_ENVIRONMENT_BYTES)
        if fault is not None:
            fields.faults.add(child(path, name), *fault)
        elif isinstance(value, str):
            total_bytes += len(name) + len(value.encode())
    if total_bytes > MAX_ENVIRONMENT_BYTES:
        fields.fault("env", "too_large", f"names and values together may have at most {MAX_ENVIRONMENT_BYTES} bytes")
    return tuple(values.items())


def _read_gpu(fields: Fields) -> GpuRequest | None:
    if fields.values.get("gpu") is None:
        return None
    gpu = Fields(fields.values["gpu"], fields.at("gpu"), fields.faults, GPU_FIELDS)
    models = gpu.names("models", names.gpu_model, "a GPU model such as H100 or H100-80GB", most=32)
    vendor = gpu.choice("vendor", GPU_VENDORS, "")
    if gpu.values.get("fraction") is not None:
        for other in ("mig", "count"):
            if gpu.values.get(other) is not None:
                gpu.fault(other, "not_allowed", "a fraction of a GPU cannot have mig or count")
        return GpuRequest(1, models, fraction_milli=_read_fraction(gpu), vendor=vendor)
    mig = ""
    if gpu.values.get("mig") is not None:
        mig = gpu.checked("mig", names.mig_profile, "a MIG profile such as 1g.10gb", most_bytes=32)
    count = gpu.whole("count", 1, MAX_GPUS_PER_POD, 1 if mig else None, required=not mig)
    return GpuRequest(count or 1, models, mig=mig, vendor=vendor)


def _read_fraction(gpu: Fields) -> int:
    text = gpu.quantity("fraction", most_bytes=8)
    try:
        thousandths = millicores(text) if text.startswith("0.") else 0
    except NotAQuantity:
        thousandths = 0
    if not 0 < thousandths < WHOLE_GPU_MILLI:
        gpu.fault("fraction", "bad_format", 'an amount such as "0.5" or 0.5: more than 0, less than 1, in thousandths')
        return 1
    return thousandths


def _read_constraints(fields: Fields) -> Constraints:
    if fields.values.get("constraints") is None:
        return Constraints()
    given = Fields(fields.values["constraints"], fields.at("constraints"), fields.faults, CONSTRAINT_FIELDS)
    return Constraints(
        clusters=given.names("clusters", names.dns_label, DNS_LABEL),
        exclude_clusters=given.names("exclude_clusters", names.dns_label, DNS_LABEL),
        regions=given.names("regions", names.region_pattern, "a region; '*' matches anything"),
        capacity_types=given.names(
            "capacity_types", CAPACITY_TYPES.__contains__, f"one of: {', '.join(CAPACITY_TYPES)}", most=3
        ),
        overflow=_read_overflow(given),
        reservation=_read_reservation(given),
    )


def _read_reservation(constraints: Fields) -> str:
    """Name or id; the caller that stores the spec replaces a name with the id."""
    if constraints.values.get("reservation") is None:
        return ""
    return constraints.checked("reservation", names.dns_label, "the name or the id of a reservation", most_bytes=63)


def _read_overflow(constraints: Fields) -> tuple[Tier, ...]:
    """The tiers: the first opens immediately, each other one later than the one before it."""
    tiers: list[Tier] = []
    least, most = 0, 0
    for index, value in enumerate(constraints.array("overflow", most=MAX_TIERS)):
        given = Fields(value, f"{constraints.at('overflow')}[{index}]", constraints.faults, TIER_FIELDS)
        after_seconds = given.whole("after_seconds", least, most, required=True) or 0
        clusters = given.names("clusters", names.dns_label, DNS_LABEL)
        regions = given.names("regions", names.region_pattern, "a region; '*' matches anything")
        tiers.append(Tier(after_seconds, clusters, regions))
        least, most = after_seconds + 1, MAX_SECONDS
    return tuple(tiers)


def _read_topology(fields: Fields) -> Topology:
    if fields.values.get("topology") is None:
        return Topology()
    given = Fields(fields.values["topology"], fields.at("topology"), fields.faults, TOPOLOGY_FIELDS)
    level = given.choice("level", LEVELS, "cluster")
    is_required = given.choice("mode", ("preferred", "required"), "preferred") == "required"
    return Topology(level, "required" if is_required else "preferred")


def _read_labels(fields: Fields, rules: Rules) -> tuple[tuple[str, str], ...]:
    values = fields.mapping("labels")
    if len(values) > MAX_LABELS:
        fields.fault("labels", "too_many", f"must have at most {MAX_LABELS} labels")
        return ()
    path = fields.at("labels")
    for key, value in values.items():
        fault = names.label_key_fault(key, allow_simulation=rules.allow_simulation) or text_fault(
            value, names.MAX_LABEL
        )
        if fault is None and not names.label_value(value):
            fault = "bad_format", "up to 63 letters, digits, '-', '_', '.', starting and ending with a letter or digit"
        if fault is None and key in (names.SIMULATED_SECONDS, names.SIMULATED_EXIT_CODE):
            fault = _simulation_fault(key, value)
        if fault is not None:
            fields.faults.add(child(path, key), *fault)
    return tuple(sorted(values.items())) if all(isinstance(value, str) for value in values.values()) else ()


def _simulation_fault(key: str, value: str) -> tuple[str, str] | None:
    most = MAX_SECONDS if key == names.SIMULATED_SECONDS else 255
    if not (value.isascii() and value.isdigit() and int(value) <= most):
        return "out_of_range", f"a whole number from 0 to {most}, as text"
    return None
