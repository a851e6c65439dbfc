"""The init steps and sidecars of a pod set, in a spec: read from untrusted JSON, and written in the normal form.

They are programs beside the pod set's own. Nothing else of a container comes from a user: the rest is what the pod set's
own container has, or less.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from federation.engine import names
from placement.values.quantities import cpu_text, memory_text, millicores, whole_bytes

from .programs import Program, read_cpu, read_memory, read_program
from .reading import Fields
from .spec import DNS_LABEL, MAX_INIT_STEPS, MAX_SIDECARS, InitStep, PodSet, Rules, SecretUse, Sidecar

INIT_FIELDS = frozenset(["image", "command", "args", "env", "cpu", "memory", "secrets"])
SIDECAR_FIELDS = INIT_FIELDS | {"name"}


def step_name(number: int) -> str:
    """The name of the container of an init step; numbers count from 1."""
    return f"init-{number}"


def read_init(
    fields: Fields, rules: Rules, cpu_millicores: int, memory_bytes: int, secrets: Sequence[SecretUse]
) -> tuple[InitStep, ...]:
    """The init steps in their order, none with more than the pod set's CPU and memory. `secrets` are the pod set's."""
    found: list[InitStep] = []
    for given in _items(fields, "init", MAX_INIT_STEPS, INIT_FIELDS):
        program = read_program(given, rules)
        found.append(
            InitStep(
                program.image,
                program.command,
                program.args,
                program.env,
                None if given.values.get("cpu") is None else read_cpu(given, cpu_millicores),
                None if given.values.get("memory") is None else read_memory(given, memory_bytes),
                _uses_secrets(given, program, secrets),
            )
        )
    return tuple(found)


def read_sidecars(
    fields: Fields, rules: Rules, main: str, init: Sequence[InitStep], secrets: Sequence[SecretUse]
) -> tuple[Sidecar, ...]:
    """The sidecars. No two containers of a pod have one name; `main` is that of the pod set's own."""
    steps = {step_name(number + 1) for number in range(len(init))}
    if main in steps:
        fields.fault("name", "duplicate", f"{main} is the name of the container of an init step")
    taken = {main, *steps}
    found: list[Sidecar] = []
    for given in _items(fields, "sidecars", MAX_SIDECARS, SIDECAR_FIELDS):
        name = given.checked("name", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
        if name and name in taken:
            given.fault("name", "duplicate", "another container of the pod has this name")
        taken.add(name)
        program = read_program(given, rules)
        uses = _uses_secrets(given, program, secrets)
        cpu, memory = read_cpu(given), read_memory(given)
        found.append(Sidecar(name, program.image, cpu, memory, program.command, program.args, program.env, uses))
    return tuple(found)


def _items(fields: Fields, name: str, most: int, known: frozenset[str]) -> Iterator[Fields]:
    for index, value in enumerate(fields.array(name, most=most)):
        yield Fields(value, f"{fields.at(name)}[{index}]", fields.faults, known)


def _uses_secrets(given: Fields, program: Program, secrets: Sequence[SecretUse]) -> bool:
    uses = given.flag("secrets", default=False)
    if uses and not secrets:
        given.fault("secrets", "conflict", "the pod set uses no secrets")
    elif uses and (twice := {use.env for use in secrets if use.env} & {name for name, _ in program.env}):
        given.fault("env", "duplicate", f"a secret of the pod set goes into {min(twice)}")
    return uses


def init_and_sidecars_json(pod_set: PodSet) -> dict[str, Any]:
    """The members of the normal form, only those that are set."""
    init = [_init_json(step) for step in pod_set.init]
    sidecars = [
        {
            "name": one.name,
            **_program_json(one),
            "cpu": cpu_text(one.cpu_millicores),
            "memory": memory_text(one.memory_bytes),
        }
        for one in pod_set.sidecars
    ]
    return {**({"init": init} if init else {}), **({"sidecars": sidecars} if sidecars else {})}


def _init_json(step: InitStep) -> dict[str, Any]:
    cpu = {} if step.cpu_millicores is None else {"cpu": cpu_text(step.cpu_millicores)}
    memory = {} if step.memory_bytes is None else {"memory": memory_text(step.memory_bytes)}
    return {**_program_json(step), **cpu, **memory}


def _program_json(one: InitStep | Sidecar) -> dict[str, Any]:
    return {
        "image": one.image,
        "command": list(one.command),
        "args": list(one.args),
        "env": dict(one.env),
        **({"secrets": True} if one.uses_secrets else {}),
    }


def held_cpu_millicores(pod_set: Mapping[str, Any]) -> int:
    """The CPU that each pod of a stored pod set holds: its program's and its sidecars' together. Init steps hold no more,
    because none may have more than the program, and sidecars start after them.
    """
    return millicores(pod_set["cpu"]) + sum(millicores(one["cpu"]) for one in pod_set.get("sidecars", ()))


def held_memory_bytes(pod_set: Mapping[str, Any]) -> int:
    """The memory that each pod of a stored pod set holds, likewise."""
    return whole_bytes(pod_set["memory"]) + sum(whole_bytes(one["memory"]) for one in pod_set.get("sidecars", ()))


def has_sidecars(stored: Mapping[str, Any]) -> bool:
    """Whether a pod set of a stored spec has sidecars."""
    return any(pod_set.get("sidecars") for pod_set in stored["pod_sets"])


def containers_of(pod_set: Mapping[str, Any]) -> list[str]:
    """The names of the containers of a stored pod set's pods: its own first, then those of init steps in their order."""
    steps = [step_name(number + 1) for number in range(len(pod_set.get("init", ())))]
    return [str(pod_set["name"]), *steps, *(str(one["name"]) for one in pod_set.get("sidecars", ()))]


def with_secrets(pod_set: Mapping[str, Any]) -> frozenset[str]:
    """The names of the containers of its init steps and sidecars that use the secrets of a stored pod set."""
    steps = {step_name(number): one for number, one in enumerate(pod_set.get("init", ()), 1)}
    others = steps | {one["name"]: one for one in pod_set.get("sidecars", ())}
    return frozenset(name for name, one in others.items() if one.get("secrets"))
