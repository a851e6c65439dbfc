import subprocess

import pytest

from devtools.serve import PROJECT

UV = "#!/bin/sh\\necho uv 1.0\\n"
INSTALL = f"""shift; while [ "$1" != --target ]; do shift; done; mkdir -p "$2/bin"; printf '{UV}' > "$2/bin/uv"; chmod +x "$2/bin/uv" """


@pytest.fixture
def find(tmp_path):
    """Runs the script on a host without uv whose python3 is made of the two answers, to pip and to venv."""

    def run(*, pip, venv):
        python = tmp_path / "python3"
        python.write_text(f'#!/bin/sh\n[ "$1" = -m ] || exit 0\ncase "$2" in\npip) {pip} ;;\nvenv) {venv} ;;\nesac\n')
        python.chmod(0o755)
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
        return subprocess.run(
            ["sh", PROJECT / "devtools" / "find_uv.sh"], env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_uv_is_installed_with_pythons_pip(find, tmp_path):
    done = find(pip=INSTALL, venv="exit 1")
    assert done.stdout.strip() == str(tmp_path / ".cache/switchyard/uv/bin/uv")


def test_uv_is_installed_with_the_pip_of_an_environment_where_python_has_none(find, tmp_path):
    """As with Debian's python3 and python3-venv; the environment is removed again."""
    made = f"""mkdir -p "$3/bin"; printf '#!/bin/sh\\nexec {tmp_path}/pip "$@"\\n' > "$3/bin/python"; chmod +x "$3/bin/python" """
    pip = tmp_path / "pip"
    pip.write_text(f"#!/bin/sh\n{INSTALL}\n")
    pip.chmod(0o755)
    before = set(tmp_path.iterdir())
    done = find(pip="exit 1", venv=made)
    assert done.stdout.strip() == str(tmp_path / ".cache/switchyard/uv/bin/uv")
    assert {path.name for path in set(tmp_path.iterdir()) - before} == {"python3", ".cache"}


def test_without_pip_and_venv_the_error_names_the_package_to_install(find):
    done = find(pip="exit 1", venv="exit 1")
    assert done.returncode == 1
    assert not done.stdout
    assert "apt-get install python3-venv" in done.stderr
