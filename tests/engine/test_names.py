"""Which names users may choose: labels, variables and images; and the names that follow from theirs."""

from uuid import UUID

import pytest

from federation.engine.names import (
    dns_label,
    environment_fault,
    id_in,
    image_fault,
    label_key_fault,
    label_value,
    namespace_of,
)

RESERVED = ("kubernetes.io", "k8s.io", "kueue.x-k8s.io", "switchyard.dev")


@pytest.mark.parametrize("domain", [*RESERVED, *(f"sub.{domain}" for domain in RESERVED)])
def test_domains_of_kubernetes_kueue_and_the_gateway_are_reserved(domain):
    fault = label_key_fault(f"{domain}/queue-name", allow_simulation=False)
    assert fault is not None
    assert fault[0] == "reserved_prefix"


@pytest.mark.parametrize("key", ["team", "example.com/team", "notk8s.io/team", "x-k8s.io/team"])
def test_other_keys_are_the_users_own(key):
    assert label_key_fault(key, allow_simulation=False) is None


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("a" * 63, None),
        ("a" * 64, "bad_format"),
        ("", "bad_format"),
        ("-a", "bad_format"),
        ("/a", "bad_format"),
        ("a/b/c", "bad_format"),
        (f"{'.'.join(['a' * 61] * 4)}.abcde/x", None),
        (f"{'.'.join(['a' * 61] * 4)}.abcdef/x", "bad_format"),
        ("Example.com/x", "bad_format"),
        ("sim.switchyard.dev/run-seconds", "reserved_prefix"),
    ],
)
def test_a_label_key_is_a_name_after_an_optional_domain_of_at_most_253_characters(key, code):
    fault = label_key_fault(key, allow_simulation=False)
    assert (fault and fault[0]) == code


def test_only_the_two_labels_of_simulated_runs_are_open_where_simulation_is_allowed():
    for name in ("run-seconds", "exit-code"):
        assert label_key_fault(f"sim.switchyard.dev/{name}", allow_simulation=True) is None
    assert label_key_fault("sim.switchyard.dev/other", allow_simulation=True) is not None


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("_", None), ("A" * 128, None), ("A" * 129, "bad_format"), ("1A", "bad_format"), ("A-B", "bad_format"),
        ("LD_PRELOAD", "not_allowed"), ("SWITCHYARD_X", "not_allowed"), ("NVIDIA_MIG_CONFIG", "not_allowed"),
        ("KUBERNETES_PORT", "not_allowed"), ("NVIDIA_VISIBLE_DEVICES", "not_allowed"),
        ("AMD_VISIBLE_DEVICES", "not_allowed"), ("NVIDIA_IMEX_CHANNELS", "not_allowed"),
        ("NVIDIA_DISABLE_REQUIRE", "not_allowed"), ("NVIDIA_OTHER", None), ("OLD_LD_", None),
    ],
)  # fmt: skip
def test_a_variable_that_steers_the_loader_the_gpus_or_the_gateway_cannot_be_set(name, code):
    fault = environment_fault(name)
    assert (fault and fault[0]) == code


DIGEST = f"@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("image", "code"),
    [
        ("train", None), ("library/train:1", None), (f"registry.example:5000/a/b{DIGEST}", None), ("r.example/a:v.1", None),
        ("registry.example:123456/a", "bad_format"), ("a:", "bad_format"), ("a@sha256:00", "bad_format"), ("", "bad_format"),
        ("Upper/case", "bad_format"), ("registry/Case", "bad_format"), ("lower/case", None),
        ("localhost/a", "not_allowed"), ("LOCALHOST:5000/a", "not_allowed"), ("10.0.0.1/a", "not_allowed"),
        ("r.0x7f/a", "not_allowed"), ("r.0x7g/a", None), ("host:5000/a", None), ("127:5000/a", "not_allowed"),
    ],
)  # fmt: skip
def test_an_image_names_its_registry_by_a_dns_name(image, code):
    fault = image_fault(image, require_digest=False)
    assert (fault and fault[0]) == code


def test_a_digest_is_required_where_the_rules_say_so():
    fault = image_fault("train:1", require_digest=True)
    assert fault is not None
    assert fault[0] == "digest_required"
    assert image_fault(f"train:1{DIGEST}", require_digest=True) is None


def test_a_namespace_is_the_tenants_own_name_cut_to_fit_and_the_end_of_its_id():
    tenant = UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert namespace_of("acme/research", tenant) == "swy-research-ccddeeff"
    assert namespace_of("acme/" + "a" * 60, tenant) == f"swy-{'a' * 50}-ccddeeff"
    assert len(namespace_of("acme/" + "a" * 60, tenant)) == 63
    assert namespace_of("acme/" + "a" * 49 + "-b", tenant) == f"swy-{'a' * 49}-ccddeeff"


def test_an_id_is_read_from_a_label_if_there_is_one():
    assert id_in({"job": "00112233-4455-6677-8899-aabbccddeeff"}, "job") == UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert id_in({"job": "none"}, "job") is id_in({}, "job") is None


def test_names_and_values_of_labels_have_at_most_63_characters():
    assert dns_label("a" * 63)
    assert not dns_label("a" * 64)
    assert label_value("")
    assert label_value("A" * 63)
    assert not label_value("A" * 64)
