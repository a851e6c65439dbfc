"""The gateway's bill of materials as CycloneDX JSON: `python -m devtools.sbom FILE`, which `make sbom` runs.

It contains the locked packages as uv exports them, with versions and hashes, and the vendored front-end files.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent


def bill_of_materials() -> dict[str, Any]:
    """The components that run in production."""
    uv = _said(["sh", "devtools/find_uv.sh"]).strip()
    bill: dict[str, Any] = json.loads(
        _said([uv, "export", "--quiet", "--frozen", "--no-dev", "--format", "cyclonedx1.5"])
    )
    for entry in json.loads((PROJECT / "static/vendor/vendored.json").read_text(encoding="utf-8")):
        bill["components"].append(
            {
                "type": "library",
                "bom-ref": f"static/{entry['path']}",
                "name": entry["package"],
                "version": entry["version"],
                "purl": f"pkg:npm/{entry['package'].replace('@', '%40')}@{entry['version']}",
                "licenses": [{"license": {"id": entry["licence"]}}],
                "hashes": [{"alg": "SHA-256", "content": entry["sha256"]}],
            }
        )
    return bill


def _said(command: list[str]) -> str:
    return subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill_of_materials(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {sys.argv[1]}")
