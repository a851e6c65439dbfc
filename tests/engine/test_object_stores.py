"""Object stores: which can be declared, how a copy from one is rendered, and the program that copies, against a store over TLS."""

import hashlib
import subprocess
from dataclasses import replace
from uuid import UUID

import pytest

from clusters.engine.object_stores import ObjectStore, faults_of, is_allowed, read_endpoint
from clusters.engine.secrets import KnownSecret, access_key, is_access_key, part_of
from clusters.engine.staging import overlap, why_not
from federation.engine.objects.job_secrets import secret_manifests, versions_of
from federation.engine.objects.rendering import Identity
from federation.engine.objects.stage_jobs import TARGET, promised_key, render_stage_in, stage_hash, stage_spec
from federation.engine.staging import NOT_WHOLE, NOTHING_THERE, WRONG_DIGEST, progress_in
from foundation.problems import Invalid
from tests.engine.test_staging import TENANT, storage
from tests.object_store import KEY_ID, PATH, REGION, SECRET, running, variables

IMAGE = f"registry.example/rclone@sha256:{'0' * 64}"
STORE = {"endpoint": "https://s3.example", "region": REGION, "bucket": "data", "path": "in/set"}
KEY = KnownSecret(UUID(int=9), "acme", "s3-key", "access_key", 4)
ANY = ["*"]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("https://s3.example", "https://s3.example"),
        ("https://S3.Example:443", "https://s3.example"),
        ("https://s3.example:9000/", "https://s3.example:9000"),
        ("https://10.1.2.3", "https://10.1.2.3"),
        ("https://[2001:DB8::1]:9000", "https://[2001:db8::1]:9000"),
    ],
)
def test_an_endpoint_has_one_form(text, normal):
    assert read_endpoint(text, ANY) == normal


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "not_https"),
        ("http://s3.example", "not_https"),
        ("HTTPS://s3.example", "not_https"),
        ("file:///etc/passwd", "not_https"),
        ("https://user:pw@s3.example", "bad_url"),
        ("https://s3.example?x=1", "bad_url"),
        ("https://s3.example#x", "bad_url"),
        ("https://s3.example/bucket", "bad_url"),
        ("https://s3.example/%2e%2e", "bad_url"),
        ("https://s3.example/..", "bad_url"),
        ("https://s3.example\n", "bad_url"),
        ("https://s3.example\r\nX: y", "bad_url"),
        ("https://s3\u3002example", "bad_url"),
        ("https://$(HOME)", "bad_url"),
        ("https://s3.example,secret=x", "bad_url"),
        ("https://0x7f.1", "bad_host"),
        ("https://-x.example", "bad_host"),
        ("https://s3.example:0", "bad_port"),
        ("https://169.254.169.254", "not_allowed"),
        ("https://[fd00:ec2::254]", "not_allowed"),
        ("https://[::ffff:169.254.169.254]", "not_allowed"),
        ("https://[64:ff9b::a9fe:a9fe]:8443", "not_allowed"),
        ("https://" + "a." * 150 + "example", "bad_host"),
    ],
)
def test_what_is_no_endpoint_is_refused(text, code):
    with pytest.raises(Invalid) as refused:
        read_endpoint(text, ANY)
    assert [(error.field, error.code) for error in refused.value.errors] == [("endpoint", code)]


@pytest.mark.parametrize(
    ("hosts", "is_one"),
    [
        (["*"], True),
        (["s3.example"], True),
        (["other", "s3.example"], True),
        (["*.example"], True),
        ([], False),
        (["example"], False),
        (["*.s3.example"], False),
        (["*.xample"], False),
        (["s3.example.evil"], False),
    ],
)
def test_the_installation_names_the_hosts(hosts, is_one):
    assert is_allowed("https://s3.example:9000", hosts) is is_one
    if not is_one:
        with pytest.raises(Invalid, match="not among those"):
            read_endpoint("https://s3.example", hosts)


@pytest.mark.parametrize(
    ("region", "bucket", "fields"),
    [
        ("eu-1", "data", []),
        ("auto", "a.b-c", []),
        ("", "data", ["region"]),
        ("EU", "data", ["region"]),
        ("eu-1\n", "data", ["region"]),
        ("eu-1", "", ["bucket"]),
        ("eu-1", "ab", ["bucket"]),
        ("eu-1", "a" * 64, ["bucket"]),
        ("eu-1", "a..b", ["bucket"]),
        ("eu-1", "../etc", ["bucket"]),
        ("eu-1", "data/x", ["bucket"]),
        ("eu-1", "data:x", ["bucket"]),
        ("eu-1", "$(id)", ["bucket"]),
        ("eu-1", "%2e%2e", ["bucket"]),
        ("eu-1", "d\u00e4ta", ["bucket"]),
        ("eu-1", "data\n", ["bucket"]),
        ("e u", "-data", ["region", "bucket"]),
    ],
)
def test_regions_and_buckets_are_plain(region, bucket, fields):
    assert [error.field for error in faults_of(region, bucket)] == fields


def test_data_is_copied_from_an_object_store_and_not_to_it():
    store = replace(
        storage("s3"), claim="", is_writable=False, store=ObjectStore("https://s3.example", "eu-1", "fast", "k")
    )
    assert why_not(store, storage(), "acme") == ""
    assert why_not(storage(), store, "acme").startswith("The storage s3 is an object store")
    assert not overlap(store, "a", storage("fast"), "a", TENANT), "a bucket is no claim of its name"


def test_an_access_key_has_two_parts_and_other_secrets_one():
    assert is_access_key(KEY_ID)
    assert not any(is_access_key(text) for text in ("", "a b", "a\n", "\u00e4", "a" * 257))
    kept = access_key(KEY_ID, SECRET)
    assert (part_of(kept, "id"), part_of(kept, "secret")) == (KEY_ID.encode(), SECRET.encode())
    assert part_of(b"{}", "") == b"{}"


def test_a_copy_from_a_store_has_its_key_only_in_a_secret():
    whose = Identity("i", UUID(int=1), "acme", UUID(int=2), UUID(int=3), 1, stage_hash(IMAGE, "", STORE))
    target = {
        "storage": "fast",
        "claim": "fast",
        "path": TARGET,
        "sub_path": "out",
        "read_only": False,
        "is_writable": True,
    }
    promised = promised_key(KEY, "swy-s-x")
    job = render_stage_in(IMAGE, "", whose, [target], STORE, promised)
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    given = {one["name"]: one for one in container["env"] if one["name"].startswith("RCLONE")}
    assert {name: one["value"] for name, one in given.items() if "value" in one} == {
        "RCLONE_CONFIG_SOURCE_TYPE": "s3",
        "RCLONE_CONFIG_SOURCE_PROVIDER": "Other",
        "RCLONE_CONFIG_SOURCE_ENDPOINT": "https://s3.example",
        "RCLONE_CONFIG_SOURCE_REGION": REGION,
        "RCLONE_INPLACE": "true",
    }
    assert {name: one["valueFrom"]["secretKeyRef"] for name, one in given.items() if "valueFrom" in one} == {
        "RCLONE_CONFIG_SOURCE_ACCESS_KEY_ID": {"name": "swy-s-x", "key": "id"},
        "RCLONE_CONFIG_SOURCE_SECRET_ACCESS_KEY": {"name": "swy-s-x", "key": "secret"},
    }
    assert container["args"] == ["--from", "source:data/in/set", "--to", TARGET]
    assert [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]] == ["fast"]
    [version] = versions_of(promised)
    [secret] = secret_manifests(promised, "ns", whose, ("j", "u"), {version: access_key(KEY_ID, SECRET)})
    assert sorted(secret["data"]) == ["id", "secret"]
    assert version == (KEY.id, 4)
    assert stage_hash(IMAGE, "", STORE) != stage_hash(IMAGE, "", {**STORE, "bucket": "other"}) != stage_hash(IMAGE, "")


# The program, as its container runs it.

FILES = {
    "a": b"1",
    "-rf": b"22",
    "d/$(touch x)": b"333",
    "d/`id`": b"",
    "d/ two blanks ": b"4444",
    "12/b": b"5",
    "\u00e9": b"6",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with running({}, tmp_path_factory.mktemp("store")) as found:
        yield found


def run(store, target, *more, path="in/set", **env):
    target.mkdir(exist_ok=True)
    pod = stage_spec(IMAGE, "", {**STORE, "endpoint": store.url, "path": path})["pod_sets"][0]
    arguments = [str(target) if one == TARGET else one for one in pod["args"]]
    own = {"PATH": PATH, **pod["env"], **variables(store), **env}
    done = subprocess.run(
        [*pod["command"], *arguments, *more], capture_output=True, text=True, check=False, timeout=60, env=own
    )
    assert not any(key in done.stdout + done.stderr for key in (KEY_ID, SECRET))
    return done


def test_the_program_copies_hostile_keys_and_reports_the_documented_digest(store, tmp_path):
    marks = {"in/set/d/": b"", "in/settle": b"not below it", "else/x": b"no"}
    store.objects = {f"in/set/{name}": content for name, content in FILES.items()} | marks
    target = tmp_path / "to"
    done = run(store, target)
    assert done.returncode == 0, done
    assert {str(one.relative_to(target)): one.read_bytes() for one in target.rglob("*") if one.is_file()} == FILES
    wanted = subprocess.run(
        "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum",
        shell=True, cwd=target, capture_output=True, text=True, check=True,
    ).stdout.split()[0]  # fmt: skip
    found = progress_in(done.stdout)
    assert (found.copied, found.total, found.sha256) == (12, 12, wanted)
    (target / "older").write_text("stays, and does not count")
    assert run(store, target, "--sha256", wanted).returncode == 0
    assert run(store, target, "--sha256", hashlib.sha256().hexdigest()).returncode == WRONG_DIGEST
    assert (target / "older").exists()


@pytest.mark.parametrize(
    ("objects", "env", "code", "said"),
    [
        ({}, {}, NOTHING_THERE, "nothing to copy"),
        ({"in/set/a": b""}, {}, NOTHING_THERE, "nothing to copy"),
        ({"in/set/a": b"1"}, {"RCLONE_CONFIG_SOURCE_SECRET_ACCESS_KEY": "wrong"}, 1, "the object store: SignatureDoesNotMatch"),
        ({"in/set/a": b"1"}, {"RCLONE_CONFIG_SOURCE_ACCESS_KEY_ID": "else"}, 1, "the object store: InvalidAccessKeyId"),
        ({"in/set/a": b"1"}, {"RCLONE_CONFIG_SOURCE_REGION": "eu-2"}, 1, "the object store: SignatureDoesNotMatch"),
        ({"in/set/a": b"1"}, {"SSL_CERT_FILE": "/dev/null"}, 1, "the object store: x509"),
        ({"in/set/../../up": b"1"}, {}, 1, "the object store: a key cannot be the name of a file"),
        ({"in/set/a//b": b"1"}, {}, 1, "the object store: a key cannot be the name of a file"),
        ({"in/set/./b": b"1", "in/set/c": b"1"}, {}, 1, "the object store: a key cannot be the name of a file"),
    ],
)  # fmt: skip
def test_what_stops_a_copy_is_said_in_words_that_are_ours(store, tmp_path, objects, env, code, said):
    store.objects, store.words = objects, f"hostile {SECRET} {KEY_ID}"
    done = run(store, tmp_path / "to", **env)
    assert (done.returncode, done.stderr.strip()) == (code, said)
    assert list((tmp_path / "to").iterdir()) == []
    assert progress_in(done.stdout).sha256 == ""


def test_a_key_with_a_line_break_makes_no_whole_copy(store, tmp_path):
    store.objects = {"in/set/a": b"1", "in/set/x\n1/a": b"2"}
    done = run(store, tmp_path / "to")
    assert (done.returncode, progress_in(done.stdout).sha256) == (NOT_WHOLE, "")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["to"]
