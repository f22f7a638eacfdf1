"""The software bill of materials of an environment, in CycloneDX's JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kube.web import plotly

ROOT = Path(__file__).resolve().parent.parent
_PLOTLY = {
    "type": "library",
    "bom-ref": f"{plotly.PACKAGE}=={plotly.VERSION}",
    "name": plotly.PACKAGE,
    "version": plotly.VERSION,
    "purl": f"pkg:npm/{plotly.PACKAGE}@{plotly.VERSION}",
    "hashes": [{"alg": "SHA-256", "content": plotly.SHA256}],
    "licenses": [{"license": {"id": "MIT"}}],
}
"""A file of the wheel, which is no distribution of Python's."""


def write_sbom(path: Path, *, python: Path, version: str) -> None:
    """Write what an environment has installed: the same environment makes the same file.

    Args:
        path: of the file.
        python: the environment's interpreter.
        version: of milliscale.

    It is not validated: `sbom_error` does that, once what follows is added.

    Raises:
        subprocess.CalledProcessError: the environment cannot be read.
    """
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--no-validate", "--of", "JSON"]
    command = [sys.executable, "-m", "cyclonedx_py", "environment", *options, "-o", "-", str(python)]
    document = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    # pyproject.toml names only the file that has the version.
    document["metadata"]["component"] |= {"version": version, "purl": f"pkg:pypi/milliscale@{version}"}
    document["components"] = sorted([*document["components"], _PLOTLY], key=lambda each: str(each["bom-ref"]))
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def sbom_error(document: str) -> object:
    """Return why a document is no valid SBOM; None if it is one.

    Importing the validator takes seconds, and most of those who import this module do not need it.
    """
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(document)
