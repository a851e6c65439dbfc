"""The controllers of a simulated cluster: its Job controller, its scheduler (best fit) and its kubelets.

Nothing runs in the background. The first process that opens the cluster performs the events scheduled since the last
access, in order of time. So the outcome does not depend on who reads or how often.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any
from uuid import uuid4

from clusters.engine.quantities import Implausible, parse

from . import allocation
from .objects import Job, Node, Pod
from .store import Store

RUN_SECONDS = "sim.switchyard.dev/run-seconds"
EXIT_CODE = "sim.switchyard.dev/exit-code"
ENDING = "sim.switchyard.dev/ending"
WAITING = "sim.switchyard.dev/waiting"
FAILING_STEP = "sim.switchyard.dev/failing-step"
KILLED = 137
_DEFAULT_SECONDS = 1.0
Amounts = dict[str, Fraction]


def let_time_pass(store: Store, now: float) -> None:
    """Performs every event scheduled up to `now`. Call inside `store.write()`."""
    while (due := store.next_due()) is not None and due[0] <= now:
        at, thing = due
        if isinstance(thing, Pod):
            _end_pod(store, thing, at)
        elif isinstance(thing, Job):
            _end_job(store, thing, at, "failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        bind(store, at)


def run_job(store: Store, job: Job, at: float) -> None:
    """The Job controller's step: creates the pods that should run and evaluates those that have ended."""
    if job.suspended or job.outcome:
        return
    job.started_at = at if job.started_at is None else job.started_at
    pods = store.pods_of(job.uid)
    job.succeeded = sorted({pod.index for pod in pods if pod.phase == "Succeeded"})
    job.failures = sum(pod.phase == "Failed" for pod in pods)
    if job.failures > job.backoff_limit:
        message = "Job has reached the specified backoff limit"
        _end_job(store, job, at, "failed", "BackoffLimitExceeded", message)
        return
    if len(job.succeeded) >= job.completions:
        _end_job(store, job, at, "succeeded", "CompletionsReached", "Reached expected number of succeeded pods")
        return
    active = {pod.index for pod in pods if not pod.is_ended}
    missing = (index for index in range(job.completions) if index not in active and index not in job.succeeded)
    for index in list(missing)[: max(job.parallelism - len(active), 0)]:
        store.put(_pod_of(job, index, at))
    store.put(job)


def suspend_job(store: Store, job: Job, at: float) -> None:
    """Suspends the Job as others may: its pods are deleted and do not count."""
    if job.suspended:
        return
    for pod in store.pods_of(job.uid):
        if not pod.is_ended:
            _remove_pod(store, pod)
    job.suspended, job.started_at = True, None
    job.generation += 1
    store.put(job)
    bind(store, at)


def remove_job(store: Store, job: Job, at: float) -> None:
    """Deletes the Job, its pods first."""
    for pod in store.pods_of(job.uid):
        _remove_pod(store, pod)
    store.remove(job)
    store.disown(job.namespace, job.uid)
    bind(store, at)


def bind(store: Store, at: float) -> None:
    """The scheduler's step: assigns pending pods, oldest first, to the fitting node with the least spare capacity."""
    pending = [pod for pod in store.pods_in("Pending") if not pod.gates and not pod.reason]
    if not pending:
        return
    free = _free(store)
    nodes = [node for node in store.nodes() if node.is_ready and node.is_schedulable]
    for pod in pending:
        wanted = _amounts(pod.requests)
        fitting = [node for node in nodes if _accepts(node, pod.spec) and _fits(free[node.name], wanted)]
        claims = {
            node.name: found for node in fitting if (found := allocation.claims_on(store, pod, node.name)) is not None
        }
        fitting = [node for node in fitting if node.name in claims]
        if not fitting:
            continue
        wishes = _node_affinity(pod.spec).get("preferredDuringSchedulingIgnoredDuringExecution", [])
        chosen = min(fitting, key=lambda node: (-_preference(wishes, node), _spare(free[node.name]), node.name))
        _take(free[chosen.name], wanted)
        for claim in claims[chosen.name]:
            store.put(claim)
        pod.node, pod.phase, pod.started_at = chosen.name, "Running", at
        pod.ends_at = None if pod.run_seconds is None else at + pod.run_seconds
        store.put(pod)


def requests_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """The sum of the requests of a pod spec's containers and sidecars: init steps have no more. Raises Implausible for
    text that is not a quantity.
    """
    sidecars = [one for one in spec.get("initContainers", ()) if one.get("restartPolicy") == "Always"]
    containers = [*spec.get("containers", []), *sidecars]
    asked = [container.get("resources", {}).get("requests", {}) for container in containers]
    if len(asked) == 1:
        _amounts(asked[0])
        return dict(asked[0])
    total: Amounts = {}
    for requests in asked:
        for resource, amount in _amounts(requests).items():
            total[resource] = total.get(resource, Fraction(0)) + amount
    return {resource: _text(amount) for resource, amount in total.items()}


def _text(amount: Fraction) -> str:
    return str(amount) if amount.denominator == 1 else f"{(amount * 1000).__ceil__()}m"


def _pod_of(job: Job, index: int, at: float) -> Pod:
    metadata, spec = job.template.get("metadata", {}), job.template.get("spec", {})
    annotations = metadata.get("annotations", {})
    seconds = annotations.get(RUN_SECONDS, "")
    uid = str(uuid4())
    return Pod(
        namespace=job.namespace,
        name=f"{job.name}-{index}-{uid[:5]}",
        uid=uid,
        labels={
            **metadata.get("labels", {}),
            "batch.kubernetes.io/job-name": job.name,
            "batch.kubernetes.io/controller-uid": job.uid,
            "batch.kubernetes.io/job-completion-index": str(index),
        },
        requests=requests_of(spec),
        spec=spec,
        job_uid=job.uid,
        index=index,
        run_seconds=None if seconds == "never" else _number(seconds, _DEFAULT_SECONDS),
        exit_code=int(_number(annotations.get(EXIT_CODE, ""), 0)),
        ending=annotations.get(ENDING, ""),
        reason=annotations.get(WAITING, ""),
        made_at=at,
        init_step=_failing_step(spec, annotations.get(FAILING_STEP, "")),
    )


def _failing_step(spec: Mapping[str, Any], text: str) -> int | None:
    """The number of an init step of the pod, if the annotation names one."""
    steps = [one for one in spec.get("initContainers", ()) if one.get("restartPolicy") != "Always"]
    number = int(_number(text, 0))
    return number if 0 < number <= len(steps) else None


def _number(text: str, default: float) -> float:
    try:
        return max(float(parse(text)), 0.0)
    except Implausible:
        return default


def _remove_pod(store: Store, pod: Pod) -> None:
    allocation.free(store, pod)
    store.remove(pod)


def _end_pod(store: Store, pod: Pod, at: float) -> None:
    allocation.free(store, pod)
    pod.phase = "Failed" if pod.exit_code or pod.disruption else "Succeeded"
    pod.ending = pod.ending or ("Error" if pod.exit_code else "" if pod.disruption else "Completed")
    pod.finished_at, pod.ends_at = at, None
    store.put(pod)
    job = store.job_by_uid(pod.job_uid) if pod.job_uid else None
    if job is not None:
        run_job(store, job, at)


def disrupt(store: Store, pod: Pod, at: float, disruption: str, reason: str = "") -> None:
    """Takes the pod from its node: the cluster's components do so, and name themselves. Its Job fails."""
    pod.disruption, pod.reason = disruption, reason
    pod.exit_code = pod.exit_code or KILLED
    _end_pod(store, pod, at)


def _end_job(store: Store, job: Job, at: float, outcome: str, reason: str, message: str) -> None:
    for pod in store.pods_of(job.uid):
        if not pod.is_ended:
            _remove_pod(store, pod)
            job.failures += 1
    job.outcome = "succeeded" if outcome == "succeeded" else "failed"
    job.reason, job.message, job.finished_at = reason, message, at
    store.put(job)


def _free(store: Store) -> dict[str, Amounts]:
    free = {node.name: _amounts(node.allocatable) for node in store.nodes()}
    for pod in store.pods_in("Running"):
        if pod.node in free:
            _take(free[pod.node], _amounts(pod.requests))
    return free


def _amounts(quantities: Mapping[str, str]) -> Amounts:
    return {resource: parse(text) for resource, text in quantities.items() if resource != "ephemeral-storage"}


def _fits(free: Amounts, wanted: Amounts) -> bool:
    enough = all(free.get(resource, Fraction(0)) >= amount for resource, amount in wanted.items() if amount)
    return enough and free.get("pods", Fraction(1)) >= 1


def _take(free: Amounts, wanted: Amounts) -> None:
    for resource, amount in wanted.items():
        free[resource] = free.get(resource, Fraction(0)) - amount
    if "pods" in free:
        free["pods"] -= 1


def _spare(free: Amounts) -> tuple[Fraction, Fraction]:
    """Remaining devices first, then CPU: the less, the tighter the fit."""
    devices = sum((amount for resource, amount in free.items() if "/" in resource), Fraction(0))
    return devices, free.get("cpu", Fraction(0))


def _accepts(node: Node, spec: Mapping[str, Any]) -> bool:
    tolerated = spec.get("tolerations", [])
    for taint in node.taints:
        if taint.get("effect") in {"NoSchedule", "NoExecute"} and not any(_tolerates(it, taint) for it in tolerated):
            return False
    if any(node.labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    terms = _node_affinity(spec).get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    return terms is None or any(_matches(term, node) for term in terms)


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _node_affinity(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = spec.get("affinity", {}).get("nodeAffinity", {})
    return found


def _preference(wishes: Sequence[Mapping[str, Any]], node: Node) -> int:
    """The sum of the weights of all preferences that the node satisfies."""
    return sum(int(wish["weight"]) for wish in wishes if _matches(wish["preference"], node))


def _matches(term: Mapping[str, Sequence[Mapping[str, Any]]], node: Node) -> bool:
    labels = {"kubernetes.io/hostname": node.name, **node.labels}
    tests: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
        "In": lambda value, values: value in values,
        "NotIn": lambda value, values: value not in values,
        "Exists": lambda value, _: value is not None,
        "DoesNotExist": lambda value, _: value is None,
        "Gt": lambda value, values: (value or "").isdigit() and int(value or "") > int(values[0]),
        "Lt": lambda value, values: (value or "").isdigit() and int(value or "") < int(values[0]),
    }
    by_name = all(tests[field["operator"]](node.name, field.get("values", [])) for field in term.get("matchFields", []))
    return by_name and all(
        tests[expression["operator"]](labels.get(expression["key"]), expression.get("values", []))
        for expression in term.get("matchExpressions", [])
    )
