"""`manage.py replay` over a fleet and a trace: what it prints, exports and refuses."""

import csv
import gzip
import io
import json
from collections import Counter
from html.parser import HTMLParser

import pytest
from django.core.management import CommandError, call_command

FLEET = """
clusters:
  - name: "east <b>"
    nodes: [{name: a, count: 3, model: A100, gpus: 8, cpu: 96, memory_gib: 1024, price: 2, rack: r1}]
  - name: west
    nodes: [{name: a, count: 2, model: A100, gpus: 8, cpu: 96, memory_gib: 1024, price: 1, rack: r1}]
"""
TRACE = "job_id,num_gpu,submit_time,duration\n" + "".join(
    f"{n},{(1, 4, 8, 16)[n % 4]},{n * 60_000},{(n % 7 + 1) * 600_000}\n" for n in range(80)
)
VOID = {"meta", "line", "polyline"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "trace.csv").write_text(TRACE)
    return tmp_path


def replay(folder, *arguments, trace="trace.csv"):
    out = io.StringIO()
    files = ["--fleet", str(folder / "fleet.yaml"), "--trace", str(folder / trace), "--quiet"]
    call_command("replay", *files, *arguments, stdout=out)
    return out.getvalue()


class Page(HTMLParser):
    """Collects what a page refers to, and checks that its tags are closed."""

    def __init__(self):
        super().__init__()
        self.open, self.references, self.seen = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.references += [value for name, value in attrs if name in {"src", "href", "xlink:href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def test_every_gateway_is_told_printed_and_exported(folder):
    exports = [part for kind in ("json", "csv", "html") for part in (f"--{kind}", str(folder / f"out.{kind}"))]
    printed = replay(folder, "--gateway", "switchyard", "cheapest_first", "emptiest_first", "--load", "1.2", *exports)
    assert printed.split()[:3] == ["switchyard", "cheapest_first", "emptiest_first"]
    assert "wait p99" in printed
    document = json.loads((folder / "out.json").read_bytes())
    assert (document["format"], document["version"]) == ("switchyard/replay", 1)
    assert document["conditions"]["load"] == 1.2
    for one in document["replays"]:
        assert one["finished"] == one["jobs"] == 80
        assert set(one["wait_seconds"]) == {"mean", "p50", "p95", "p99", "max"}
        assert sum(float(cluster["cost"]) for cluster in one["clusters"]) == pytest.approx(float(one["cost"]), abs=0.02)
        assert one["curve"]
    rows = list(csv.DictReader((folder / "out.csv").read_text().splitlines()))
    assert len(rows) == 240
    assert {row["gateway"] for row in rows} == {"switchyard", "cheapest_first", "emptiest_first"}
    page = Page()
    page.feed((folder / "out.html").read_text())
    assert not page.open
    assert not page.references
    assert not {"script", "link", "img", "b"} & set(page.seen)
    assert page.seen.count("svg") >= 4


def test_equal_input_gives_equal_bytes_and_an_export_is_itself_a_trace(folder):
    for name in ("one", "two"):
        replay(folder, "--json", str(folder / name), "--csv", str(folder / f"{name}.csv"), "--fail-every-hours", "1")
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()
    (folder / "one.csv.gz").write_bytes(gzip.compress((folder / "one.csv").read_bytes()))
    assert replay(folder, trace="one.csv.gz") == replay(folder)


def test_a_replay_tells_how_far_it_is(folder, capsys):
    files = ["--fleet", str(folder / "fleet.yaml"), "--trace", str(folder / "trace.csv")]
    call_command("replay", *files, "--limit", "20", stdout=io.StringIO())
    assert "switchyard: 20 of 20 jobs (100 %)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told", "code"),
    [
        ([], "give --snapshot, or --fleet and --trace", 2),
        (["--fleet", "fleet.yaml"], "must be used together", 2),
        (["--snapshot", "x", "--fleet", "fleet.yaml"], "give --snapshot, or", 2),
        (["--fleet", "fleet.yaml", "--trace", "nowhere.csv"], "nowhere.csv: No such file", 1),
        (["--fleet", "trace.csv", "--trace", "trace.csv"], "trace.csv: line 1, column 1", 1),
        (["--fleet", "fleet.yaml", "--trace", "fleet.yaml"], "fleet.yaml: line", 1),
        (
            ["--fleet", "fleet.yaml", "--trace", "bad.csv"],
            "bad.csv: line 3, column 4 (duration): 'x' is not a number",
            1,
        ),
        (["--fleet", "fleet.yaml", "--trace", "raw.zst"], "not UTF-8 text (byte 1); for a .zst file", 1),
        (["--fleet", "fleet.yaml", "--trace", "cut.gz"], "cut.gz: ", 1),
        (
            ["--fleet", "fleet.yaml", "--trace", "trace.csv", "--json", "no/where.json"],
            "no/where.json: cannot be written",
            1,
        ),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--html", "."], ".: cannot be written", 1),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--limit", "0"], "--limit must be at least 1", 2),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--stop"], "--stop needs --until-hours", 2),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--fail-every-hours", "0"], "more than 0", 2),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--until-hours", "0"], "must be after", 2),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--load", "nan"], "--load", 1),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--load", "-1"], "--load", 1),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--weight", "a=0"], "--weight", 1),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--weight", "2"], "--weight", 1),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--half-life-hours", "0"], "--half-life-hours", 1),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--past-strength", "-1"], "--past-strength", 1),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--strategy", "luck"], "invalid choice: 'luck'", 1),
        (["--fleet", "fleet.yaml", "--trace", "trace.csv", "--gateway", "slurm"], "invalid choice: 'slurm'", 1),
    ],
)
def test_what_cannot_be_done_is_told_and_nothing_is_written(folder, monkeypatch, arguments, told, code):
    monkeypatch.chdir(folder)
    (folder / "bad.csv").write_text("job_id,num_gpu,submit_time,duration\n1,1,0,5\n2,1,0,x\n")
    (folder / "raw.zst").write_bytes(b"\x28\xb5\x2f\xfd\xff")
    (folder / "cut.gz").write_bytes(gzip.compress(b"name" * 999)[:20])
    before = sorted(folder.iterdir())
    with pytest.raises(CommandError) as caught:
        call_command("replay", *arguments, "--json", "out.json") if "--json" not in arguments else call_command(
            "replay", *arguments
        )
    assert told in str(caught.value)
    assert caught.value.returncode == code
    assert sorted(folder.iterdir()) == before


def test_tenants_of_a_trace_share_turns_by_their_weights(folder):
    """Two tenants ask for all GPUs at the same time, in jobs of one node."""
    header = "job,submitted_at,seconds,pods,gpus,cpu_millicores,memory_mib,tenant\n"
    rows = "".join(f"{tenant}{n},{n},600,1,8,1000,1000,{tenant}\n" for tenant in ("a", "b") for n in range(20))
    (folder / "own.csv").write_text(header + rows)

    def first(*arguments):
        """How many of the first half of all starts are b's."""
        out = folder / "out.csv"
        replay(folder, "--order", "submitted", "--csv", str(out), *arguments, trace="own.csv")
        starts = sorted(
            (float(row["started_at"]), row["job"][0]) for row in csv.DictReader(out.read_text().splitlines())
        )
        return Counter(name for _, name in starts[:20])["b"]

    alone, heavy = first(), first("--weight", "b=8", "--past-strength", "0")
    assert abs(alone - 10) <= 1
    assert heavy > 12
    assert first("--no-fair-share", "--weight", "b=8") <= 11
