"""Nothing that is read may become code: no serializer that can make objects, in the source or in the settings."""

import ast

import pytest
import yaml
from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.dummy import DummyCache

from clusters.engine import kubeconfig
from config.celery import app

from .source import PRODUCT, ROOT, files, name, nodes, tree

MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "marshal", "shelve", "dill", "joblib", "jsonpickle"}
CALLS = {
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all",
    "pandas.read_pickle", "numpy.load", "np.load", "eval", "exec", "compile",
    "kombu.enable_insecure_serializers", "enable_insecure_serializers",
}  # fmt: skip
# Django's backends that unpickle, and the serializers of others that do.
UNPICKLES = (
    "RedisCache",
    "FileBasedCache",
    "DatabaseCache",
    "LocMemCache",
    "PyMemcacheCache",
    "PyLibMCCache",
    "PickleSerializer",
)
PLACES = (*PRODUCT, "devtools", "benchmarks")


def offences(module):
    """Lines that bring in or call what makes objects of bytes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found = {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found = ({(node.module or "").partition(".")[0]} & MODULES) | (names & CALLS)
        elif isinstance(node, ast.Call):
            found = {ast.unparse(node.func)} & CALLS
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = {word for word in UNPICKLES if node.value.endswith(word)} | ({node.value} & MODULES)
        else:
            continue
        if found:
            yield node.lineno


# The reader of users' YAML: a SafeLoader with less. It may have the one call.
OWN_LOADER = ROOT / "clusters" / "engine" / "kubeconfig.py"
# The tool that tries changed functions compiles them; nothing of the product runs it.
OF_MUTANTS = ROOT / "devtools" / "mutants" / "warm.py"


def test_nothing_in_the_source_makes_objects_of_bytes():
    found = [
        f"{name(path)}:{line}"
        for path in files(PLACES, migrations=True)
        for line in offences(tree(path))
        if path not in {OWN_LOADER, OF_MUTANTS}
    ]
    assert not found, f"read JSON, numbers or yaml.safe_load instead: {found}"


def test_the_one_loader_of_its_own_is_a_safe_one():
    assert len(list(offences(tree(OWN_LOADER)))) == 1
    assert issubclass(kubeconfig._PlainLoader, yaml.SafeLoader)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "import marshal as m", "from shelve import open", "import dill.session", "from yaml import load",
        "yaml.load(text, Loader=yaml.Loader)", "yaml.unsafe_load(text)", "eval(text)", "__import__('pickle')",
        "x = 'django.core.cache.backends.redis.RedisCache'", "x = 'django.contrib.sessions.serializers.PickleSerializer'",
        "accept_content = ['json', 'pickle']", "numpy.load(file)",
    ],
)  # fmt: skip
def test_what_makes_objects_of_bytes_is_seen(text):
    assert list(offences(ast.parse(text)))


def test_nothing_is_cached_outside_the_process():
    assert all(isinstance(caches[alias], DummyCache) for alias in settings.CACHES)


def test_sessions_and_messages_are_json():
    assert settings.SESSION_ENGINE == "django.contrib.sessions.backends.db"
    assert settings.SESSION_SERIALIZER == "django.contrib.sessions.serializers.JSONSerializer"
    assert settings.MESSAGE_STORAGE.startswith("django.contrib.messages.storage.")


def test_no_serializer_of_celery_is_another_than_json():
    for setting in ("task_serializer", "result_serializer", "event_serializer"):
        assert app.conf[setting] == "json"
    for setting in ("accept_content", "result_accept_content"):
        assert list(app.conf[setting]) == ["json"]
    assert app.conf.result_backend is None


def test_tasks_take_no_arguments():
    with_arguments = [
        f"{name(path)}:{node.lineno} {node.name}"
        for path in files()
        if path.name == "tasks.py"
        for node in nodes(path, ast.FunctionDef)
        if ast.unparse(node.args)
    ]
    assert not with_arguments, f"rows are the queue; a message only says look now (ADR 1): {with_arguments}"
