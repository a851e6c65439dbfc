"""Fleet files: clusters of groups of equal nodes as YAML. Every error names file, line and column.

    clusters:
      - name: east
        region: us-east-1
        member: spread            # how it picks nodes: spread (kube-scheduler), bestfit or pack
        hints: true               # it follows the nodes that the gateway names
        summary_seconds: 10       # how often the gateway learns what is free there
        nodes:
          - {name: a100, count: 16, model: A100-80GB, gpus: 8, cpu: 96, memory_gib: 1024, price: "2.50",
             zone: z1, block: b1, rack: "r{rack}", nodes_per_rack: 8}
        price_changes:
          - {at_hours: 24, flavor: A100-80GB, price: "1.80"}

A spot node is reclaimed `interruptions_per_hour` times an hour (default 0.05), at random but equal for equal seeds.
Nodes of a group differ by number; `{rack}` increases after every `nodes_per_rack` nodes. The default flavor is the GPU
model, with the suffix `-spot` on spot nodes, and `cpu` for nodes without GPUs; `flavor` sets another name. Prices are
per GPU and hour (per core, without GPUs).
"""

from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml

from .values import HOUR, MEMBERS, ClusterPlan, Machine, PriceChange, ReplayError

MOST_NODES = 200_000
MOST_CHARACTERS = 8 * 2**20
CLUSTER_FIELDS = frozenset(
    ["name", "region", "provider", "member", "hints", "summary_seconds", "nodes", "price_changes"]
)
GROUP_FIELDS = frozenset(
    [
        "name", "count", "model", "gpus", "cpu", "memory_gib", "price", "flavor", "spot", "zone", "block", "rack",
        "nodes_per_rack", "clique", "pods", "vendor", "gpu_memory_mib", "interruptions_per_hour",
    ]
)  # fmt: skip
CHANGE_FIELDS = frozenset(["at_hours", "flavor", "price"])
MOST = 10**9
USUAL_INTERRUPTIONS = 0.05
"""Per hour; the gateway's default for spot capacity."""
MOST_INTERRUPTIONS = 100


class _File:
    """Makes errors with positions in the file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wrong(self, mark: Any, why: str) -> ReplayError:
        return ReplayError(f"{self.name}: line {mark.line + 1}, column {mark.column + 1}: {why}")


class _Fields:
    """A mapping of the file, its values read by name."""

    def __init__(self, file: _File, node: Any, known: frozenset[str], what: str) -> None:
        self._file, self.node = file, node
        if not isinstance(node, yaml.MappingNode):
            raise file.wrong(node.start_mark, f"a {what} must have fields, such as name: …")
        self._values: dict[str, Any] = {}
        for key, value in node.value:
            if key.value not in known:
                told = f"a {what} has no field {key.value!r}; it has {', '.join(sorted(known))}"
                raise file.wrong(key.start_mark, told)
            if key.value in self._values:
                raise file.wrong(key.start_mark, f"{key.value} appears twice")
            self._values[key.value] = value

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def wrong(self, field: str, why: str) -> ReplayError:
        node = self._values.get(field, self.node)
        return self._file.wrong(node.start_mark, f"{field} {why}")

    def text(self, field: str, absent: str | None = "") -> str:
        node = self._values.get(field)
        if node is None:
            if absent is None:
                raise self.wrong(field, "is missing")
            return absent
        if not isinstance(node, yaml.ScalarNode):
            raise self.wrong(field, "is not a plain value")
        return str(node.value)

    def number(self, field: str, absent: Decimal | None = None, *, least: int = 0, most: int = MOST) -> Decimal:
        text = self.text(field, None if absent is None else str(absent))
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise self.wrong(field, f"is not a number: {text!r}") from None
        if not value.is_finite() or not least <= value <= most:
            raise self.wrong(field, f"is not between {least} and {most}: {text}")
        return value

    def whole(self, field: str, absent: int | None = None, *, least: int = 0, most: int = MOST) -> int:
        value = self.number(field, None if absent is None else Decimal(absent), least=least, most=most)
        if value != int(value):
            raise self.wrong(field, f"is not a whole number: {value}")
        return int(value)

    def flag(self, field: str, *, absent: bool) -> bool:
        text = self.text(field, str(absent)).lower()
        if text not in {"true", "false"}:
            raise self.wrong(field, "is neither true nor false")
        return text == "true"

    def items(self, field: str) -> list[Any]:
        node = self._values.get(field)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self.wrong(field, "is not a list")
        items: list[Any] = node.value
        return items


def read_fleet(name: str, text: str) -> tuple[ClusterPlan, ...]:
    """The clusters of a fleet file, in its order. `name` is the file's name in errors."""
    file = _File(name)
    fields = _Fields(file, _parsed(file, text), frozenset(["clusters"]), "fleet file")
    plans = [_cluster(file, node) for node in fields.items("clusters")]
    if not plans:
        raise fields.wrong("clusters", "has no cluster")
    names = [plan.name for plan in plans]
    twice = next((number for number, one in enumerate(names) if one in names[:number]), None)
    if twice is not None:
        raise file.wrong(fields.items("clusters")[twice].start_mark, f"two clusters are called {names[twice]}")
    if sum(len(plan.machines) for plan in plans) > MOST_NODES:
        raise fields.wrong("clusters", f"has more than {MOST_NODES} nodes in total")
    return tuple(plans)


def _parsed(file: _File, text: str) -> Any:
    if len(text) > MOST_CHARACTERS:
        raise ReplayError(f"{file.name}: line 1, column 1: longer than {MOST_CHARACTERS} characters")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ReplayError(f"{file.name}: {place}{error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ReplayError(f"{file.name}: line 1, column 1: {str(error).splitlines()[0]}") from None
    if node is None:
        raise ReplayError(f"{file.name}: line 1, column 1: the file is empty")
    _refuse_aliases(file, node)
    return node


def _refuse_aliases(file: _File, root: Any) -> None:
    """Refuses aliases (the same YAML node twice): expanded, a few of them could produce an endless file."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            raise file.wrong(node.start_mark, "aliases are not supported; write the value out")
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _cluster(file: _File, node: Any) -> ClusterPlan:
    fields = _Fields(file, node, CLUSTER_FIELDS, "cluster")
    member = next((one for one in MEMBERS if one == fields.text("member", "spread")), None)
    if member is None:
        raise fields.wrong("member", f"is not one of {', '.join(MEMBERS)}")
    groups = [_Fields(file, one, GROUP_FIELDS, "group of nodes") for one in fields.items("nodes")]
    prices: dict[str, Decimal] = {}
    machines: list[Machine] = []
    interruptions: dict[str, float] = {}
    for group in groups:
        machines += _machines(group)
        _note_interruptions(group, interruptions)
        if "price" in group:
            price = group.number("price")
            if prices.setdefault(_flavor(group), price) != price:
                raise group.wrong("price", f"differs from an earlier one of flavor {_flavor(group)}")
    if not machines:
        raise fields.wrong("nodes", "has no node")
    if len({machine.name for machine in machines}) < len(machines):
        raise fields.wrong("nodes", "has two nodes with the same name; give each group its own name")
    flavors = {machine.flavor for machine in machines}
    changes = [_change(file, one, flavors) for one in fields.items("price_changes")]
    return ClusterPlan(
        name=fields.text("name", None),
        machines=tuple(machines),
        prices=prices,
        price_changes=tuple(sorted(changes, key=lambda change: change.at)),
        member=member,
        hints=fields.flag("hints", absent=True),
        region=fields.text("region"),
        summary_seconds=float(fields.number("summary_seconds")) if "summary_seconds" in fields else None,
        interruptions=interruptions,
    )


def _note_interruptions(group: _Fields, interruptions: dict[str, float]) -> None:
    told = "interruptions_per_hour"
    if not group.flag("spot", absent=False):
        if told in group:
            raise group.wrong(told, "is given for nodes that are not spot")
        return
    rate = float(group.number(told, Decimal(str(USUAL_INTERRUPTIONS)), most=MOST_INTERRUPTIONS))
    if interruptions.setdefault(_flavor(group), rate) != rate:
        raise group.wrong(told, f"differs from an earlier one of flavor {_flavor(group)}")


def _change(file: _File, node: Any, flavors: set[str]) -> PriceChange:
    fields = _Fields(file, node, CHANGE_FIELDS, "price change")
    flavor = fields.text("flavor", None)
    if flavor not in flavors:
        raise fields.wrong("flavor", f"is not one of the cluster's: {', '.join(sorted(flavors))}")
    return PriceChange(float(fields.number("at_hours")) * HOUR, flavor, fields.number("price"))


def _flavor(group: _Fields) -> str:
    plain = group.text("model") + "-spot" * group.flag("spot", absent=False) if group.text("model") else "cpu"
    return group.text("flavor", plain)


def _machines(group: _Fields) -> Iterator[Machine]:
    model, gpus = group.text("model"), group.whole("gpus", 0, most=1024)
    if bool(model) != bool(gpus):
        raise group.wrong("gpus" if model else "model", "is missing: GPUs need a model, and a model GPUs")
    per_rack = group.whole("nodes_per_rack", 8, least=1)
    name = group.text("name", None)
    rack_of = _rack(group)
    for number in range(group.whole("count", 1, most=MOST_NODES)):
        yield Machine(
            name=f"{name}-{number:05d}",
            flavor=_flavor(group),
            model=model,
            gpus=gpus,
            cpu_millicores=int(group.number("cpu") * 1000),
            memory_mib=int(group.number("memory_gib") * 1024),
            domain=(group.text("zone"), group.text("block"), rack_of(1 + number // per_rack)),
            clique=group.text("clique"),
            pods=group.whole("pods", 110, least=1),
            capacity_type="spot" if group.flag("spot", absent=False) else "on_demand",
        )


def _rack(group: _Fields) -> Callable[[int], str]:
    rack = group.text("rack")
    if set(rack.replace("{rack}", "")) & set("{}"):
        raise group.wrong("rack", "can contain {rack} and no other braces")
    return lambda number: rack.replace("{rack}", str(number))
