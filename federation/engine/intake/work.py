"""A job's work in a spec: the data it names, its throughput on GPU models, and its retries. Each is read from untrusted
JSON, and written in the normal form.
"""

from decimal import Decimal
from typing import Any

from clusters.engine.datasets import DATASET_NAME, BadSize, is_name, size_of
from federation.engine import names
from federation.engine.retries import MOST_RETRIES, RETRY_FIELDS, Retries
from placement.values.datasets import DataNeed
from placement.values.model import ModelSpeed
from placement.values.quantities import memory_text

from .reading import Fields, child
from .spec import MAX_DATASETS, MAX_SPEED, MAX_SPEEDS, SPEED_MILLI, Rules

DATA_FIELDS = frozenset(["name", "read", "stage"])


def read_data(fields: Fields, _rules: Rules) -> tuple[DataNeed, ...]:
    """The datasets that it names, each once; the caller checks that they exist."""
    found: list[DataNeed] = []
    for index, value in enumerate(fields.array("data", most=MAX_DATASETS)):
        given = Fields(value, f"{fields.at('data')}[{index}]", fields.faults, DATA_FIELDS)
        name = given.checked("name", is_name, DATASET_NAME, most_bytes=120)
        if name and any(need.name == name for need in found):
            given.fault("name", "duplicate", "this dataset is named already")
        found.append(DataNeed(name, _read_size(given), stage=given.flag("stage", default=False)))
    return tuple(found)


def data_json(data: tuple[DataNeed, ...]) -> list[dict[str, Any]]:
    """The normal form of the datasets."""
    return [
        {"name": need.name, "read": None if need.size_bytes is None else memory_text(need.size_bytes)}
        | ({"stage": True} if need.stage else {})
        for need in data
    ]


def _read_size(given: Fields) -> int | None:
    if given.values.get("read") is None:
        return None
    text = given.quantity("read")
    try:
        return size_of(text) if text else None
    except BadSize as error:
        given.fault("read", error.code, str(error))
        return None


def read_throughput(fields: Fields, _rules: Rules) -> tuple[ModelSpeed, ...]:
    """Its throughput by model; only ratios count."""
    told, path = fields.mapping("throughput"), fields.at("throughput")
    if len(told) > MAX_SPEEDS:
        fields.fault("throughput", "too_many", f"must have at most {MAX_SPEEDS} models")
        return ()
    found = []
    for model, value in told.items():
        speed = _speed_milli(value)
        if not names.gpu_model(model):
            fields.faults.add(child(path, model), "bad_format", "a GPU model such as H100 or H100-80GB")
        elif speed is None:
            detail = f"a number such as 2.4, at most {MAX_SPEED}, with up to 3 decimals"
            fields.faults.add(child(path, model), "wrong_type" if _is_no_number(value) else "out_of_range", detail)
        else:
            found.append(ModelSpeed(model, speed))
    return tuple(sorted(found, key=lambda one: one.model))


def throughput_json(speeds: tuple[ModelSpeed, ...]) -> dict[str, int | float]:
    """The normal form of the throughput, by model."""
    return {each.model: _speed_json(each) for each in speeds}


def _speed_json(each: ModelSpeed) -> int | float:
    whole, rest = divmod(each.speed_milli, SPEED_MILLI)
    return each.speed_milli / SPEED_MILLI if rest else whole


def _is_no_number(value: object) -> bool:
    return isinstance(value, bool) or not isinstance(value, int | float)


def _speed_milli(value: object) -> int | None:
    """The speed in thousandths; None if the value is not a speed."""
    if _is_no_number(value):
        return None
    speed = Decimal(str(value)) * SPEED_MILLI
    if not speed.is_finite() or not 1 <= speed <= MAX_SPEED * SPEED_MILLI or speed != speed.to_integral_value():
        return None
    return int(speed)


def read_retries(fields: Fields, _rules: Rules) -> Retries:
    """The number of retries, by cause."""
    given = Fields(fields.values["retries"], fields.at("retries"), fields.faults, RETRY_FIELDS)
    told = {name: given.whole(name, 0, MOST_RETRIES) for name in sorted(RETRY_FIELDS)}
    return Retries(**{name: most for name, most in told.items() if most is not None})


def read_reports(fields: Fields, rules: Rules) -> bool:
    """Whether the job's runs may report to the gateway, which needs an address that they can reach."""
    wanted = fields.flag("reports", default=False)
    if wanted and not rules.takes_reports:
        fields.fault(
            "reports", "not_allowed", "this installation takes no reports: an operator sets SWITCHYARD_PUBLIC_URL first"
        )
    return wanted
