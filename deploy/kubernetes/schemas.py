"""Writes the schemas of Kubernetes as kubeconform reads them: schemas.py VERSION FOLDER MANIFEST...

One file for each kind in the manifests, with all definitions in it. The schemas are those of the package
kubernetes-validate, which refer to a common file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import kubernetes_validate
import yaml

_COMMON = "/api/_definitions.json#"


def name_of(manifest: dict[str, str]) -> str:
    """The file of a kind, such as statefulset-apps-v1."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    words = manifest["kind"], group.partition(".")[0], version
    return "-".join(word.lower() for word in words if word)


def main() -> None:
    """Run the command line."""
    version, folder, manifests = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    package = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    schemas = package / f"v{version}.0-local"
    folder.mkdir(parents=True)
    definitions = json.loads((schemas / "_definitions.json").read_text())["$defs"]
    for manifest in manifests:
        for found in yaml.safe_load_all(Path(manifest).read_text()):
            schema = schemas / f"{name_of(found)}.json"
            if schema.exists():
                whole = {**json.loads(schema.read_text()), "$defs": definitions}
                (folder / schema.name).write_text(json.dumps(whole).replace(_COMMON, "#"))


if __name__ == "__main__":
    main()
