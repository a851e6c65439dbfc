"""What a container runs, in a spec: its image, its command and its variables, and its CPU and memory. Read from untrusted
JSON.
"""

from dataclasses import dataclass

from federation.engine import names
from placement.values.quantities import cpu_text, memory_text, millicores, whole_bytes

from .amounts import read_amount
from .reading import Fields, child, text_fault
from .spec import (
    MAX_ARGUMENT_BYTES,
    MAX_ARGUMENTS,
    MAX_CPU_MILLICORES,
    MAX_ENVIRONMENT,
    MAX_ENVIRONMENT_BYTES,
    MAX_MEMORY_BYTES,
    MIN_CPU_MILLICORES,
    MIN_MEMORY_BYTES,
    Rules,
)


@dataclass(frozen=True, slots=True)
class Program:
    """What a container runs."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


def read_program(fields: Fields, rules: Rules) -> Program:
    """The image, the command with its arguments, and the variables."""
    return Program(
        _read_image(fields, rules),
        fields.texts("command", most=MAX_ARGUMENTS, most_bytes=MAX_ARGUMENT_BYTES),
        fields.texts("args", most=MAX_ARGUMENTS, most_bytes=MAX_ARGUMENT_BYTES),
        _read_environment(fields),
    )


def read_cpu(fields: Fields, most: int = MAX_CPU_MILLICORES) -> int:
    """The CPU, in thousandths."""
    return read_amount(fields, "cpu", millicores, cpu_text, MIN_CPU_MILLICORES, max(most, MIN_CPU_MILLICORES))


def read_memory(fields: Fields, most: int = MAX_MEMORY_BYTES) -> int:
    """The memory, in bytes."""
    return read_amount(fields, "memory", whole_bytes, memory_text, MIN_MEMORY_BYTES, max(most, MIN_MEMORY_BYTES))


def _read_image(fields: Fields, rules: Rules) -> str:
    before = len(fields.faults.found)
    image = fields.text("image", most_bytes=512)
    is_read = len(fields.faults.found) == before
    fault = names.image_fault(image, require_digest=rules.require_digest) if is_read else None
    if fault is not None:
        fields.fault("image", *fault)
    return image


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
