"""Artifacts in specs and reports: nothing leads outside the declared place, and nothing has room for a credential."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.artifacts import Artifact, is_object_url, reference_below, unannounced, unannounced_text
from federation.engine.intake.manifest import read_manifest
from federation.engine.intake.normal_form import encode, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.reports import AnnouncedArtifact, read_report
from tests.builders import make_spec

RULES = Rules(takes_reports=True)
MOUNT = {"storage": "shared", "path": "/out", "sub_path": "runs/7", "read_only": False}
MODEL = {"name": "model", "storage": "shared", "path": "runs/7/model", "required": True}
LOGS = {"name": "logs", "url": "s3://bucket/run-7/logs"}
DIGEST = "0123456789abcdef" * 4


def spec(*artifacts, mounts=(MOUNT,), **more):
    return {**make_spec(pod={"mounts": list(mounts)}), "reports": True, "artifacts": list(artifacts), **more}


def refusals(body, read=lambda body: read_spec(body, RULES)):
    with pytest.raises(Refused) as refused:
        read(body)
    return {(fault.field, fault.code) for fault in refused.value.faults}


def test_declared_artifacts_are_read_and_stored_in_their_order():
    found = read_spec(spec(MODEL, LOGS), RULES)
    assert found.artifacts == (
        Artifact("model", "shared", "runs/7/model", is_required=True),
        Artifact("logs", url="s3://bucket/run-7/logs"),
    )
    stored = spec_json(found)
    assert stored["artifacts"] == [MODEL, {**LOGS, "required": False}]
    assert read_spec(stored, RULES) == found
    plain = spec_json(read_spec(spec(), RULES))
    assert "artifacts" not in plain
    assert shape_of(plain) == shape_of(stored), "placement does not see artifacts"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": "Model"}, ("name", "bad_format")),
        ({"name": "a\nb"}, ("name", "bad_format")),
        ({"name": None}, ("name", "required")),
        ({"storage": None}, ("storage", "required")),
        ({"url": "s3://b/x"}, ("url", "conflict")),
        ({"storage": None, "url": "s3://b/x"}, ("path", "conflict")),
        ({"path": None}, ("path", "required")),
        ({"path": "/runs/7/model"}, ("path", "bad_format")),
        ({"path": "runs/7/../8"}, ("path", "bad_format")),
        ({"path": "runs/7/./8"}, ("path", "bad_format")),
        ({"path": "runs/7//8"}, ("path", "bad_format")),
        ({"path": "runs/7/"}, ("path", "bad_format")),
        ({"path": "runs/7/a\x1b[31m"}, ("path", "bad_format")),
        ({"path": "runs/7/\u202emodel"}, ("path", "bad_format")),
        ({"path": "runs/7/" + "x" * 512}, ("path", "too_long")),
        ({"path": "runs/8/model"}, ("path", "not_allowed")),
        ({"path": "runs/77"}, ("path", "not_allowed")),
        ({"path": "runs"}, ("path", "not_allowed")),
        ({"storage": "others"}, ("path", "not_allowed")),
        ({"required": 1}, ("required", "wrong_type")),
        ({"sha256": DIGEST}, ("sha256", "unknown_field")),
    ],
)  # fmt: skip
def test_a_hostile_declaration_is_refused_with_the_field(change, fault):
    field, code = fault
    assert (f"artifacts[0].{field}", code) in refusals(spec({**MODEL, **change}))


def test_what_a_job_cannot_write_or_announce_is_refused():
    assert refusals(spec(MODEL, reports=False)) == {("artifacts", "conflict")}
    assert refusals(spec(MODEL, mounts=[{**MOUNT, "read_only": True}])) == {("artifacts[0].path", "not_allowed")}
    assert refusals(spec(MODEL, {**LOGS, "name": "model"})) == {("artifacts[1].name", "duplicate")}
    assert refusals(spec(*({**LOGS, "name": f"a{n}"} for n in range(33)))) == {("artifacts", "too_many")}
    assert refusals(spec("model")) == {("artifacts[0]", "wrong_type")}
    assert (
        read_spec(spec({**MODEL, "path": "any"}, mounts=[{**MOUNT, "sub_path": ""}]), RULES).artifacts[0].path == "any"
    )


def test_a_spec_with_the_longest_artifacts_is_within_the_bound_that_is_checked_first():
    longest = [{"name": f"{n:063d}", "url": "s3://b/" + "x" * 505, "required": True} for n in range(32)]
    assert len(encode(spec_json(read_spec(spec(*longest), RULES))["artifacts"])) < 32 * 700


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket", "s3://bucket/", "s3:///key", "s3://bucket/a/", "s3://bucket//a", "s3://bucket/../a", "s3://bucket/a/..",
        "s3://bucket/./a", "s3://key:secret@bucket/a", "https://user@host/a", "https://host/a?sig=x", "https://host/a#x",
        "https://host/a%2e%2e/b", "https://host/a b", "https://host/a\n", "https://host\\a/b", "http://host/a", "file:///etc/passwd",
        "javascript://host/a", "S3://bucket/a", "https://host:port/a", "https://[::1]/a", "s3://b/" + "x" * 506, "",
    ],
)  # fmt: skip
def test_a_url_that_is_not_plain_is_refused(url):
    assert not is_object_url(url)
    assert ("artifacts[0].url", "bad_format") in refusals(spec({"name": "x", "url": url})) or len(url) > 512 or not url


@pytest.mark.parametrize(
    "url", ["s3://b/x", "gs://bucket.name/a/b=1/c", "az://container/a@b", "https://host.example:8443/a~1"]
)
def test_a_plain_url_is_taken(url):
    assert is_object_url(url)


@given(st.text(st.sampled_from("s3:/az.@?#%\\ \n\tgshtp=~,+-0"), max_size=14).map("s3://b".__add__))
def test_a_url_that_is_taken_names_no_user_no_query_and_no_way_up(url):
    if is_object_url(url):
        parts = urlsplit(url)
        assert (parts.username, parts.password, parts.query, parts.fragment) == (None, None, "", "")
        assert not {"", ".", ".."} & set(parts.path.split("/")[1:])
        assert url.isprintable()


def announced(**changes):
    return {"sequence": 1, "artifacts": [{"name": "model", "sha256": DIGEST, "size_bytes": 7, **changes}]}


def test_an_announcement_is_read():
    assert read_report(announced()).artifacts == (AnnouncedArtifact("model", DIGEST, 7),)
    assert read_report(announced(path="step-9/weights")).artifacts[0].path == "step-9/weights"
    assert read_report({"sequence": 1}).artifacts == ()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"sha256": DIGEST[:-1]}, ("sha256", "bad_format")),
        ({"sha256": DIGEST + "0"}, ("sha256", "too_long")),
        ({"sha256": DIGEST.upper()}, ("sha256", "bad_format")),
        ({"sha256": DIGEST[:-1] + "\n"}, ("sha256", "bad_format")),
        ({"sha256": None}, ("sha256", "required")),
        ({"size_bytes": None}, ("size_bytes", "required")),
        ({"size_bytes": -1}, ("size_bytes", "out_of_range")),
        ({"size_bytes": 2**53}, ("size_bytes", "out_of_range")),
        ({"size_bytes": 10**60}, ("size_bytes", "out_of_range")),
        ({"size_bytes": True}, ("size_bytes", "wrong_type")),
        ({"path": "../other"}, ("path", "bad_format")),
        ({"path": "/etc/passwd"}, ("path", "bad_format")),
        ({"path": "a\x07"}, ("path", "bad_format")),
        ({"path": ["a"]}, ("path", "wrong_type")),
        ({"name": "x" * 64}, ("name", "too_long")),
        ({"url": "s3://b/x"}, ("url", "unknown_field")),
    ],
)
def test_a_hostile_announcement_is_refused_with_the_field(change, fault):
    field, code = fault
    assert refusals(announced(**change), read_report) == {(f"artifacts[0].{field}", code)}


def test_ten_thousand_announcements_and_the_same_name_twice_are_refused():
    [one] = announced()["artifacts"]
    assert refusals({"sequence": 1, "artifacts": [one] * 10_000}, read_report) == {("artifacts", "too_many")}
    assert refusals({"sequence": 1, "artifacts": [one, one]}, read_report) == {("artifacts[1].name", "duplicate")}
    assert refusals({"sequence": 1, "artifacts": {}}, read_report) == {("artifacts", "wrong_type")}


def test_what_is_missing_at_the_end_is_named():
    declared = [MODEL, {**LOGS, "required": False}, {**MODEL, "name": "report"}]
    assert unannounced(declared, ["model", "else"]) == ["report"]
    assert unannounced(declared, []) == ["model", "report"]
    assert unannounced_text(["report"]) == "Its program succeeded, but did not announce the required artifact report."
    assert "the required artifacts model, report." in unannounced_text(["model", "report"])
    assert reference_below(MODEL, "") == "runs/7/model"
    assert reference_below(LOGS, "a/b") == "s3://bucket/run-7/logs/a/b"


def test_they_stand_beside_a_manifest():
    container = {"name": "main", "image": "train:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    pods = {"restartPolicy": "Never", "containers": [container]}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": {"spec": pods}}}
    beside = {"reports": True, "artifacts": [LOGS]}
    assert read_manifest(made, beside, RULES).artifacts == (Artifact("logs", url=LOGS["url"]),)
    assert refusals({"artifacts": [MODEL], "reports": True}, lambda body: read_manifest(made, body, RULES)) == {
        ("artifacts[0].path", "not_allowed")
    }
