"""What is shipped to run ``svc`` in containers fits the program: its settings, commands, routes, users and times.

Their form is checked by ``tox -e manifests`` with the schemas of those who run them; ``tests/integration/test_container.py``
runs what the manifests say.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.main import main
from svc.server.listening import DRAIN_SECONDS
from svc.settings.config import OPTIONS
from svc.settings.reading import read_settings
from svc.web.routes.health import Health
from tests import manifests
from tests.test_docs import read_command

DATABASE = "postgresql://svc@db.example.org/svc"


def seconds(text: str) -> float:
    """A duration of Compose."""
    return float(text.removesuffix("s"))


def strings(value: Any) -> Iterator[str]:
    """Every text within a document."""
    match value:
        case dict():
            for each in value.values():
                yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)
        case str():
            yield value


class ManifestsTestCase(SynchronousTestCase):
    """A test of what containers run."""

    def read(self, arguments: list[str]) -> None:
        """Read arguments of svc as it does in a container, whose environment says where the server is."""
        self.patch(os, "environ", {**os.environ, **manifests.image_environment(), "SVC_ACCOUNT": "acme"})
        read_command(main, arguments)


class ContainerfileTests(ManifestsTestCase):
    """The container file."""

    def test_entry(self) -> None:
        """The image's command is svc, and by itself it runs the server; its health check is a command, too (OPS-11)."""
        self.assertEqual(manifests.words("ENTRYPOINT"), ["svc"])
        self.assertEqual(manifests.words("CMD"), ["server"])
        name, *arguments = manifests.words("HEALTHCHECK")
        self.assertEqual(name, "svc")
        self.read(arguments)

    def test_secrets_of_compose(self) -> None:
        """The folder of secrets, which the page has operators make in the source, is not committed with it."""
        files = [secret["file"] for secret in manifests.documents(manifests.COMPOSE)[0]["secrets"].values()]
        self.assertEqual({file.partition("/")[0] for file in files}, {"secrets"})
        self.assertIn("/etc/compose/secrets/", (manifests.ROOT / ".gitignore").read_text("utf-8").splitlines())

    def test_sources(self) -> None:
        """What is copied exists, and the build sees it and nothing else."""
        ignore = (manifests.ROOT / "etc/container/Containerfile.dockerignore").read_text("utf-8").splitlines()
        seen = {line.removeprefix("!") for line in ignore if line.startswith("!")}
        copied = {
            word
            for stage in manifests.instructions()
            for name, arguments in stage
            if name == "COPY" and "--from" not in arguments
            for word in arguments.split()[:-1]
        }
        self.assertEqual(copied, seen)
        for word in copied:
            self.assertTrue((manifests.ROOT / word).exists(), word)
        for link in (path for path in (manifests.ROOT / "svc").rglob("*") if path.is_symlink()):
            leads = link.resolve().relative_to(manifests.ROOT)
            self.assertTrue(any(leads.is_relative_to(word) for word in copied), f"{link} leads to {leads}")
        self.assertIn("*", ignore)
        self.assertTrue(any(fnmatch("svc/__pycache__", line) for line in ignore))

    def test_last_stage(self) -> None:
        """The image has no compiler and no installer, and its user is not root (OPS-11)."""
        *_, last = manifests.instructions()
        installs = [arguments for name, arguments in last if name == "RUN"]
        packages = {
            word
            for text in installs
            for command in text.split("&&")
            if "apt-get install" in command
            for word in command.split()[2:]
            if not word.startswith("-")
        }
        self.assertEqual(packages, {"ca-certificates", "python3"})
        self.assertEqual(manifests.image()["USER"], "10001:10001")
        self.assertIn("--uid 10001", " ".join(installs))

    def test_settings(self) -> None:
        """The settings that the image has are settings."""
        given = {name: value for name, value in manifests.image_environment().items() if name.startswith("SERVICE_")}
        self.assertEqual(str(read_settings({}, given).data_dir), manifests.image()["VOLUME"])

    def test_versions(self) -> None:
        """What is installed is of the versions that the tests ran with."""
        [install] = [text for name, text in manifests.instructions()[0] if name == "RUN" and "pip" in text and "svc" in text]
        self.assertIn("--constraint /src/constraints.txt", install)
        self.assertIn("--only-binary :all:", install)


class ContainerSettingsTests(ManifestsTestCase):
    """Settings, commands, routes and times in the manifests."""

    def places(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Each place that has variables of the environment, and what it says, with a database."""
        compose = manifests.documents(manifests.COMPOSE)[0]
        yield "compose.yaml", compose["services"]["svc"]["environment"]
        yield "Kubernetes", manifests.container_environment({("svc-database", "url"): DATABASE})

    def test_settings(self) -> None:
        """Each variable is a setting with a value that it takes, and those in comments, too (OPS-13)."""
        known = {option.variable for option in OPTIONS}
        for place, given in self.places():
            wrong = {name for name in given if name.startswith("SERVICE_")} - known
            self.assertEqual(wrong, set(), place)
            settings = read_settings({}, given)
            self.assertIsNotNone(settings.database_url, place)
            self.assertIsNotNone(settings.data_key_file, place)
        text = (manifests.KUBERNETES / "settings.yaml").read_text(encoding="utf-8")
        commented = dict(re.findall(r'(?m)^ +# (SERVICE_\w+): "(.*)"$', text))
        self.assertGreater(len(commented), 2)
        self.assertEqual(set(commented) - known, set())
        read_settings({}, commented)

    def test_files(self) -> None:
        """Each file that a setting names is in a folder that is mounted, from a secret that is there."""
        mounts = [mount["mountPath"] for mount in manifests.container()["volumeMounts"]]
        compose = manifests.documents(manifests.COMPOSE)[0]
        secrets = [f"/run/secrets/{name}" for name in compose["services"]["svc"]["secrets"]]
        for (place, given), folders in zip(self.places(), (secrets, mounts), strict=True):
            files = [file for name, text in given.items() if name != "SERVICE_DATA_DIR" for file in self.paths(name, text)]
            self.assertGreater(len(files), 2, place)
            for file in files:
                self.assertTrue(any(file == folder or file.startswith(f"{folder}/") for folder in folders), file)

    def paths(self, name: str, text: str) -> list[str]:
        """The files that a setting names."""
        return re.findall(r"(?:^|[=])(/[^:\s&]+)", text) if name.startswith("SERVICE_") else []

    def test_data_dir(self) -> None:
        """Where the server keeps what it writes is the one place that can be written to."""
        spec = manifests.found("Deployment")["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
        writable = [mount["mountPath"] for mount in manifests.container()["volumeMounts"] if mount["name"] in volumes]
        self.assertEqual(writable, [manifests.container_environment({("svc-database", "url"): ""})["SERVICE_DATA_DIR"]])

    def test_commands(self) -> None:
        """What containers run are commands of svc, which take these arguments (OPS-13)."""
        found = 0
        for place, spec in manifests.pods():
            for each in [*spec.get("initContainers", ()), *spec["containers"]]:
                if each["image"] == "svc" or each.get("command") == ["svc"]:
                    found += 1
                    self.read(each["args"])
                    if each["args"][0] == "run":
                        self.assertTrue({"SVC_URL", "SVC_ACCOUNT"} <= {variable["name"] for variable in each["env"]}, place)
        self.assertEqual(found, 3)
        name, *arguments = manifests.documents(manifests.COMPOSE)[0]["services"]["svc"]["healthcheck"]["test"][1:]
        self.assertEqual(name, "svc")
        self.read(arguments)

    def test_probes(self) -> None:
        """What Kubernetes asks is a route that needs no login, at a port where the server listens (OPS-13)."""
        [settings] = [read_settings({}, given) for place, given in self.places() if place == "Kubernetes"]
        ports = {port["name"]: port["containerPort"] for port in manifests.container()["ports"]}
        listening = {int(number) for text in settings.listen for number in re.findall(r"^(?:ssl|tcp):(\d+)", text)}
        routes = {(route.method, route.pattern.text) for route in Health.routes}
        for name, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            probe = manifests.container()[name]["httpGet"]
            self.assertEqual((probe["path"], probe["scheme"]), (path, "HTTPS"))
            self.assertIn(ports[probe["port"]], listening)
            self.assertIn(("GET", path), routes)
        self.assertEqual(settings.metrics_listen, f"tcp:{ports['metrics']}")

    def test_stop(self) -> None:
        """A server is given the time that it needs to end: its requests have had theirs (OPS-13)."""
        spec = manifests.found("Deployment")["spec"]["template"]["spec"]
        command = manifests.container()["lifecycle"]["preStop"]["exec"]["command"]
        self.assertEqual(command[0], "sleep")
        self.assertGreaterEqual(spec["terminationGracePeriodSeconds"], int(command[1]) + 2 * DRAIN_SECONDS)
        compose = manifests.documents(manifests.COMPOSE)[0]["services"]["svc"]
        self.assertGreaterEqual(seconds(compose["stop_grace_period"]), 2 * DRAIN_SECONDS)


class RightsTests(SynchronousTestCase):
    """What the containers may do."""

    def test_pods(self) -> None:
        """No pod runs as root, gains rights, has capabilities, or a token for the cluster (OPS-12)."""
        for place, spec in manifests.pods():
            self.assertIs(spec["automountServiceAccountToken"], False, place)
            self.assertIs(spec["securityContext"]["runAsNonRoot"], True, place)
            self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"}, place)
            for each in [*spec.get("initContainers", ()), *spec["containers"]]:
                self.assertIs(each["securityContext"]["allowPrivilegeEscalation"], False, place)
                self.assertEqual(each["securityContext"]["capabilities"], {"drop": ["ALL"]}, place)
                if each["image"] == "svc":
                    self.assertIs(each["securityContext"]["readOnlyRootFilesystem"], True, place)
        spec = manifests.found("Deployment")["spec"]["template"]["spec"]
        context = spec["securityContext"]
        self.assertEqual(f"{context['runAsUser']}:{context['runAsGroup']}", manifests.image()["USER"])
        self.assertIs(spec["enableServiceLinks"], False)

    def test_compose(self) -> None:
        """So it is with Compose, where the database has no way out (OPS-12)."""
        compose = manifests.documents(manifests.COMPOSE)[0]
        server = compose["services"]["svc"]
        self.assertIs(server["read_only"], True)
        self.assertEqual(server["cap_drop"], ["ALL"])
        self.assertEqual(server["security_opt"], ["no-new-privileges:true"])
        self.assertIs(compose["networks"]["back"]["internal"], True)
        self.assertNotIn("ports", compose["services"]["postgres"])
        for service in compose["services"].values():
            self.assertLessEqual(set(service["secrets"]), set(compose["secrets"]))

    def test_secrets(self) -> None:
        """No secret is in a manifest, and those of the server can be read by its group alone (OPS-12)."""
        self.assertEqual([path for path, document in manifests.manifests() if document["kind"] == "Secret"], [])
        given = [*manifests.container_environment({("svc-database", "url"): ""})]
        given += manifests.documents(manifests.COMPOSE)[0]["services"]["svc"]["environment"]
        self.assertNotIn("SERVICE_DATA_KEY", given)
        for volume in manifests.found("Deployment")["spec"]["template"]["spec"]["volumes"]:
            if "secret" in volume:
                self.assertEqual(volume["secret"]["defaultMode"], 0o440)

    def test_audiences(self) -> None:
        """The token that a pod shows to the server is for it alone, and lives for minutes; the server's own is another."""
        projected = [
            (place, source["serviceAccountToken"])
            for place, spec in manifests.pods()
            for volume in spec["volumes"]
            for source in volume.get("projected", {}).get("sources", ())
        ]
        own, workload = sorted(projected)
        self.assertEqual((workload[0], workload[1]["audience"]), ("pod.yaml", "https://svc.svc-system.svc"))
        self.assertLessEqual(workload[1]["expirationSeconds"], 600)
        self.assertEqual(own[0], "deployment.yaml")
        self.assertNotIn("audience", own[1], "the cluster's own: it is for the cluster's API")


class KubernetesTests(ManifestsTestCase):
    """How the manifests hang together."""

    def test_kustomization(self) -> None:
        """Each file beside the kustomization is named in it."""
        [kustomization] = manifests.documents(manifests.KUBERNETES / "kustomization.yaml")
        files = {path.name for path in manifests.KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
        self.assertEqual(set(kustomization["resources"]), files)
        [namespace] = [each["metadata"]["name"] for _, each in manifests.manifests() if each["kind"] == "Namespace"]
        self.assertEqual(kustomization["namespace"], namespace)

    def test_selectors(self) -> None:
        """Service, budget, policy of the network and spread are about the deployment's pods, at ports that they have."""
        deployment = manifests.found("Deployment")["spec"]
        labels = deployment["template"]["metadata"]["labels"]
        ports = {port["name"] for port in manifests.container()["ports"]}
        network = manifests.found("NetworkPolicy")["spec"]
        spread = deployment["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
        budget = manifests.found("PodDisruptionBudget")["spec"]
        for selector in (
            deployment["selector"]["matchLabels"],
            manifests.found("Service")["spec"]["selector"],
            budget["selector"]["matchLabels"],
            network["podSelector"]["matchLabels"],
            spread,
        ):
            self.assertEqual(selector, labels)
        self.assertEqual(manifests.found("Service")["spec"]["ports"][0]["targetPort"], "https")
        self.assertEqual({port["port"] for rule in network["ingress"] for port in rule["ports"]}, ports)
        self.assertGreater(deployment["replicas"], budget["minAvailable"])

    def test_mounts(self) -> None:
        """Each volume that is mounted is there, and each that is there is mounted."""
        for place, spec in manifests.pods():
            there = {volume["name"] for volume in spec["volumes"]}
            used = {mount["name"] for each in spec["containers"] for mount in each["volumeMounts"]}
            self.assertEqual(used, there, place)

    def test_addresses(self) -> None:
        """Workloads ask at the address of the service, and for the account that the pages have."""
        service, [namespace] = manifests.found("Service")["metadata"]["name"], self.namespaces()
        addresses = {
            found
            for path, document in manifests.manifests()
            if path.parent.name == "workload"
            for text in strings(document)
            for found in re.findall(r"https://[\w.-]+", text)
        }
        self.assertEqual(addresses, {f"https://{service}.{namespace}.svc"})

    def namespaces(self) -> list[str]:
        """The namespaces that are made."""
        return [each["metadata"]["name"] for _, each in manifests.manifests() if each["kind"] == "Namespace"]

    def test_debian(self) -> None:
        """A shell can read the scripts of the package for Debian, and what they take from the source is there."""
        folder = manifests.ROOT / "etc" / "debian"
        for script in ("build", "postinst", "prerm", "postrm"):
            subprocess.run(["sh", "-n", str(folder / script)], check=True)
        text = (folder / "build").read_text(encoding="utf-8")
        taken = re.findall(r"\$source/([\w./-]+)", text)
        self.assertGreater(len(taken), 5)
        self.assertEqual([name for name in taken if not (manifests.ROOT / name).exists()], [])
        for command in re.findall(r'bin/svc" ([^>\n]+)', text):
            self.read(shlex.split(command))

    def test_shell(self) -> None:
        """Each command of the container file is one that a shell can read."""
        for stage in manifests.instructions():
            for name, text in stage:
                if name == "RUN":
                    self.assertTrue(shlex.split(text))
                    subprocess.run(["sh", "-n"], input=text.encode(), check=True)
        self.assertTrue(Path(manifests.CONTAINERFILE).exists())
