"""Secrets, storages, shared memory, local disk and ports in the submit form and on the page of a job."""

import pytest

from federation.queries.pod_set_lines import pod_set_line
from federation.web.submit import spec_of_form
from foundation.problems import Invalid
from tests.builders import bind, make_user

VALUES = {
    "tenant": "acme",
    "name": "train",
    "image": "registry.example/a:1",
    "count": "2",
    "kind": "none",
    "cpu": "1",
    "memory": "8Gi",
}


def pod_set_of(**values):
    (pod_set,) = spec_of_form({**VALUES, **values})["pod_sets"]
    return pod_set


def test_an_empty_form_sets_none_of_it():
    assert {"shm", "scratch", "ports"}.isdisjoint(pod_set_of(shm=" ", scratch="", scratch_path="", ports="\n"))


def test_the_form_sets_what_is_typed_in():
    pod_set = pod_set_of(shm="2Gi", scratch="1Ti", scratch_path="/data", ports="http=8080\n\ngrpc = x")
    assert pod_set["shm"] == "2Gi"
    assert pod_set["scratch"] == {"size": "1Ti", "path": "/data"}
    assert pod_set["ports"] == [{"name": "http", "number": 8080}, {"name": "grpc", "number": "x"}]
    assert pod_set_of(scratch_path="/data")["scratch"] == {"size": "", "path": "/data"}


def test_a_line_that_is_no_port_is_refused_at_its_control():
    with pytest.raises(Invalid) as refusal:
        pod_set_of(ports="8080")
    assert [error.field for error in refusal.value.errors] == ["pod_sets[0].ports"]


def test_secrets_and_storages_are_read_line_by_line():
    pod_set = pod_set_of(
        secrets="HF_TOKEN=hf-token\n/run/secrets/key = ssh-key",
        pull_secret=" ghcr ",
        mounts="/data=datasets/imagenet/train\n/out=team write\n/in=team read\n/fast=nvme 200Gi\n/odd=nvme/x 2 Gi",
    )
    assert pod_set["secrets"] == [
        {"secret": "hf-token", "env": "HF_TOKEN"},
        {"secret": "ssh-key", "file": "/run/secrets/key"},
    ]
    assert pod_set["pull_secret"] == "ghcr"
    assert pod_set["mounts"] == [
        {"storage": "datasets", "path": "/data", "sub_path": "imagenet/train", "read_only": True},
        {"storage": "team", "path": "/out", "read_only": False},
        {"storage": "team", "path": "/in", "read_only": "read"},
        {"storage": "nvme", "path": "/fast", "size": "200Gi"},
        {"storage": "nvme", "path": "/odd", "sub_path": "x", "size": "2 Gi"},
    ], "a word that means nothing is left to the spec's reader, which refuses it"
    assert {"secrets", "mounts", "pull_secret"}.isdisjoint(pod_set_of(secrets="", mounts=" ", pull_secret=""))


@pytest.mark.parametrize("control", ["secrets", "mounts"])
def test_a_line_that_is_no_pair_is_refused_at_its_control(control):
    with pytest.raises(Invalid) as refusal:
        pod_set_of(**{control: "hf-token"})
    assert [error.field for error in refusal.value.errors] == [f"pod_sets[0].{control}"]


def test_a_pod_set_says_what_it_has():
    stored = {"cpu": "1", "memory": "8Gi", "shm": "2Gi", "scratch": {"size": "1Ti", "path": "/data"},
              "ports": [{"name": "http", "number": 8080}]}  # fmt: skip
    assert pod_set_line(stored).local_state == ("2Gi shared memory", "1Ti local disk at /data", "port 8080 (http)")
    assert pod_set_line({}).local_state == ()


def test_a_job_reports_if_the_form_says_so():
    assert "reports" not in spec_of_form({**VALUES, "reports": ""})
    assert spec_of_form({**VALUES, "reports": "yes"})["reports"] is True


@pytest.mark.django_db
@pytest.mark.parametrize("url", ["", "https://gateway.example"])
def test_the_form_offers_reports_where_the_installation_takes_them(client, settings, url):
    settings.PUBLIC_URL = url
    user = make_user()
    bind(user, "acme")
    client.force_login(user)
    assert ('name="reports"' in client.get("/jobs/new/").content.decode()) == bool(url)
