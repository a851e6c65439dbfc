"""The files that energy and emissions are computed from."""

from datetime import UTC, datetime

import pytest

from billing.engine.carbon_file import (
    READERS,
    Intensity,
    Measured,
    NotCarbonFile,
    RatedPart,
    SiteOf,
    read_carbon_file,
)

INTENSITIES, RATINGS, SITES, MEASURED = (",".join(columns) + "\n" for columns in READERS)


def at(day, hour=0):
    return datetime(2026, 10, day, hour, tzinfo=UTC)


def test_each_kind_is_read_exactly():
    assert read_carbon_file(
        "\ufeff" + INTENSITIES + "FR,2026-10-01,2026-11-01,56.25\r\n\r\nFR,2026-10-02T13:00Z,,0\n"
    ) == (
        Intensity("FR", at(1), datetime(2026, 11, 1, tzinfo=UTC), 56_250),
        Intensity("FR", at(2, 13), at(2, 14), 0),
    )
    assert read_carbon_file(RATINGS + "gpu,NVIDIA H100,2026-10-01,700,150.5,43800\ncore,,2026-10-01,3.25,,\n") == (
        RatedPart("gpu", "NVIDIA H100", at(1), 700_000, 150_500, 43_800),
        RatedPart("core", "", at(1), 3_250, None, None),
    )
    assert read_carbon_file(SITES + "north, 2026-10-01T05:00:00Z ,FR,1.12\n") == (
        SiteOf("north", at(1, 5), "FR", 1120),
    )
    assert read_carbon_file(MEASURED + "north,ab-1~1,2026-10-01T05:00Z,512.001\n") == (
        Measured("north", "ab-1~1", at(1, 5), 512_001),
    )
    assert read_carbon_file(SITES) == ()


WRONG = {
    "": "line 1: the columns are one of",
    "region,hour\n": "line 1: the columns are one of",
    SITES + "north,2026-10-01,FR\n": "line 2: it has 3 columns, not 4",
    SITES + "north,2026-10-01,FR,0.999\n": "line 2: `pue` is at least 1",
    SITES + "north,2026-10-01,FR,10.001\n": "line 2: `pue` is 10.001, which is beyond 10",
    SITES + "north,2026-10-01,FR,1.1234\n": "line 2: `pue` is '1.1234', not a number with up to 3 decimals",
    SITES + "north,2026-10-01,FR,-1\n": "`pue` is '-1'",
    SITES + "north,2026-10-01,FR,NaN\n": "`pue` is 'NaN'",
    SITES + "north,2026-10-01,FR,1e3\n": "`pue` is '1e3'",
    SITES + "north,2026-10-01,FR,\u0661\n": "not a number",
    SITES + "north,2026-10-01T05:30Z,FR,1\n": "`from` is '2026-10-01T05:30Z', not a day or a whole hour",
    SITES + "north,2026-10-01T05:00,FR,1\n": "not a day or a whole hour",
    SITES + "north,2026-02-30,FR,1\n": "not a day or a whole hour",
    SITES + "north,1999-12-31,FR,1\n": "not a day or a whole hour",
    SITES + "north,2026-10-01,F\x00R,1\n": "",
    SITES + "north,2026-10-01,,1\n": "`region` is missing",
    SITES + "x" * 64 + ",2026-10-01,FR,1\n": "`cluster` is missing, too long",
    SITES + "north,2026-10-01,FR,1\nnorth,2026-10-01T00:00Z,DE,2\n": "line 3: the same is there twice",
    SITES + 'north,"2026-10-01,FR,1\n': "line 2",
    INTENSITIES + "FR,2026-10-02,2026-10-02,1\n": "`until` is not after `from`",
    INTENSITIES + "FR,2026-10-02,,10001\n": "beyond 10000",
    RATINGS + "gpu,,2026-10-01,1,,\n": "`part` is gpu with a `gpu_model`",
    RATINGS + "core,H100,2026-10-01,1,,\n": "`part` is gpu with a `gpu_model`",
    RATINGS + "node,,2026-10-01,1,,\n": "`part` is gpu with a `gpu_model`",
    RATINGS + "core,,2026-10-01,1,5,\n": "both or neither",
    RATINGS + "core,,2026-10-01,1,5,0\n": "`life_hours` is at least 1",
    RATINGS + "core,,2026-10-01,1,5,1.5\n": "`life_hours` is '1.5', not a number with up to 0 decimals",
    RATINGS + "core,,2026-10-01,1,5,438001\n": "beyond 438000",
    RATINGS + "core,,2026-10-01,100000.001,,\n": "beyond 100000",
    RATINGS + "core,,2026-10-01,1,1000000.001,1\n": "beyond 1000000",
    MEASURED + "north,,2026-10-01,1\n": "`pod` is missing",
    MEASURED + "north,a,2026-10-01,1000000.001\n": "beyond 1000000",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named_with_its_line(text):
    with pytest.raises(NotCarbonFile) as refused:
        read_carbon_file(text)
    assert WRONG[text] in str(refused.value)


def test_a_file_has_an_end(monkeypatch):
    monkeypatch.setattr("billing.engine.carbon_file.MOST_CHARACTERS", len(SITES))
    read_carbon_file(SITES)
    with pytest.raises(NotCarbonFile, match="at most"):
        read_carbon_file(SITES + " ")
