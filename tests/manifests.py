"""What is shipped to run ``svc`` in containers, as container engines, Compose and Kubernetes read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
CONTAINERFILE: Final = ROOT / "etc" / "container" / "Containerfile"
COMPOSE: Final = ROOT / "etc" / "compose" / "compose.yaml"
KUBERNETES: Final = ROOT / "etc" / "kubernetes"


def instructions() -> list[list[tuple[str, str]]]:
    """The instructions of each stage of the container file, with their arguments; what precedes the first stage is none."""
    text = re.sub(r"(?m)^#.*\n", "", CONTAINERFILE.read_text(encoding="utf-8")).replace("\\\n", " ")
    stages: list[list[tuple[str, str]]] = []
    for line in filter(None, text.splitlines()):
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            stages.append([])
        if stages:
            stages[-1].append((name, " ".join(arguments.split())))
    return stages


def image() -> dict[str, str]:
    """The last word on each instruction of the image itself."""
    return dict(instructions()[-1])


def image_environment() -> dict[str, str]:
    """The environment that the image gives to its processes."""
    return dict(word.split("=", 1) for word in image()["ENV"].split())


def words(instruction: str) -> list[str]:
    """The words of an instruction of the image that is written as a list."""
    found = json.loads(re.sub(r"^[^\[]*", "", image()[instruction]))
    assert isinstance(found, list)
    return found


def documents(path: Path) -> list[dict[str, Any]]:
    """The documents of a manifest."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def manifests() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every document for Kubernetes, with its file, but for the kustomization."""
    for path in sorted(KUBERNETES.rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            for document in documents(path):
                yield path, document


def found(kind: str, name: str = "svc") -> dict[str, Any]:
    """The one manifest of that kind and name."""
    [document] = [each for _, each in manifests() if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return document


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The specification of each pod, with what it is called in messages."""
    for path, document in manifests():
        spec = document.get("spec", {})
        if document["kind"] == "Pod":
            yield path.name, spec
        elif "template" in spec:
            yield path.name, spec["template"]["spec"]


def container() -> dict[str, Any]:
    """The container of the server."""
    [one] = found("Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(one, dict)
    return one


def container_environment(secrets: dict[tuple[str, str], str]) -> dict[str, str]:
    """The environment of the server's container, with these values of keys of secrets."""
    given = dict(found("ConfigMap", "svc-settings")["data"])
    for variable in container()["env"]:
        key = variable["valueFrom"]["secretKeyRef"]
        given[variable["name"]] = secrets[key["name"], key["key"]]
    return {**image_environment(), **given}
