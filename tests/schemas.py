"""Checks the manifests for Kubernetes with the published schemas of its versions; ``tox -e manifests`` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml
from kubernetes_validate import utils

#: The kinds whose schemas are not Kubernetes' own: of the kustomization, External Secrets and the Secrets Store CSI driver.
OTHERS = {"Kustomization", "SecretStore", "ExternalSecret", "SecretProviderClass"}

#: The oldest version whose schemas are tried.
OLDEST = (1, 30)


def main(folder: str) -> int:
    """Check each document in ``folder`` by the schemas of each version, strictly; return the exit code."""
    versions = [text for text in utils.all_versions() if tuple(map(int, text.split(".")[:2])) >= OLDEST]
    faults, checked = [], 0
    for path in sorted(Path(folder).rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document["kind"] in OTHERS:
                continue
            checked += 1
            for version in versions:
                try:
                    utils.validate(document, version, strict=True)
                except (utils.ValidationError, utils.SchemaNotFoundError) as error:
                    faults.append(f"{path}: {document['kind']}, Kubernetes {version}: {error.message}")
    print("\n".join(faults) or f"{checked} manifests are valid for Kubernetes {versions[0]} to {versions[-1]}")
    return int(bool(faults) or not checked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
