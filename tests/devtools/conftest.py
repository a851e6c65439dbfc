import subprocess

import pytest
import yaml

from devtools.programs import unpack
from devtools.serve import PROJECT


@pytest.fixture(scope="module")
def helm(tmp_path_factory):
    program = unpack("helm", tmp_path_factory.mktemp("helm"))

    def run(*arguments, succeeds=True):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def rendered(helm):
    text = helm("template", "swy", str(PROJECT / "helm"), "--set", "settings.egressAllow={10.0.0.0/8,fd00::/8}")
    return [document for document in yaml.safe_load_all(text) if document]
