"""A job's work in a spec, read from untrusted JSON: the data it names, its throughput on GPU models,
and its retries.
"""

from decimal import Decimal

from clusters.engine.datasets import DATASET_NAME, BadSize, is_name, size_of
from federation.engine import names
from federation.engine.retries import MOST_RETRIES, RETRY_FIELDS, Retries
from placement.values.datasets import DataNeed
from placement.values.model import ModelSpeed

from .reading import Fields, child
from .spec import DATA_FIELDS, MAX_DATASETS, MAX_SPEED, MAX_SPEEDS, SPEED_MILLI


def read_data(fields: Fields) -> tuple[DataNeed, ...]:
    """The datasets that it names, each once; the caller checks that they exist."""
    found: list[DataNeed] = []
    for index, value in enumerate(fields.array("data", most=MAX_DATASETS)):
        given = Fields(value, f"{fields.at('data')}[{index}]", fields.faults, DATA_FIELDS)
        name = given.checked("name", is_name, DATASET_NAME, most_bytes=120)
        if name and any(need.name == name for need in found):
            given.fault("name", "duplicate", "this dataset is named already")
        found.append(DataNeed(name, _read_size(given)))
    return tuple(found)


def _read_size(given: Fields) -> int | None:
    if given.values.get("read") is None:
        return None
    text = given.quantity("read")
    try:
        return size_of(text) if text else None
    except BadSize as error:
        given.fault("read", error.code, str(error))
        return None


def read_throughput(fields: Fields) -> tuple[ModelSpeed, ...]:
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


def read_retries(fields: Fields) -> Retries:
    """The number of retries, by cause."""
    if fields.values.get("retries") is None:
        return Retries()
    given = Fields(fields.values["retries"], fields.at("retries"), fields.faults, RETRY_FIELDS)
    told = {name: given.whole(name, 0, MOST_RETRIES) for name in sorted(RETRY_FIELDS)}
    return Retries(**{name: most for name, most in told.items() if most is not None})
