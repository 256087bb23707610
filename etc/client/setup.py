"""Packaging of svc-client: the command `svc` and the client libraries, without the server.

Its modules are those of ``files.txt``, which are copied here from the tree: the server's distribution has all others.
"""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
TREE, SOURCE = HERE.parents[1], HERE / "src"

# A source distribution has the copy alone.
if (TREE / "etc" / "client" / "setup.py").is_file():
    for leftover in (SOURCE, HERE / "build"):
        shutil.rmtree(leftover, ignore_errors=True)
    for name in (HERE / "files.txt").read_text(encoding="utf-8").splitlines():
        (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TREE / name, SOURCE / name)

setup(
    name="svc-client",
    version=re.search(r'VERSION: Final = "([^"]+)"', (SOURCE / "svc" / "_version.py").read_text())[1],
    description="The command and the client libraries of svc, which holds secrets and decides who may read them.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    package_dir={"": "src"},
    packages=find_packages("src"),
    package_data={"svc": ["py.typed"], "svc.model": ["reasons.md"]},
    install_requires=[
        "attrs >= 23.2",
        "click >= 8.1",
        # It reads the one request of a browser that comes back from signing in; httpx brings it along.
        "h11 >= 0.16, < 1",
        # Connections are made through its interface, and given to a transport of httpx in a private place.
        "httpcore >= 1.0.9, < 1.1",
        # Its transports carry the requests; its Client isn't used: see svc/client/httpx_common.py.
        "httpx >= 0.28.1, < 0.29",
        # Addresses are what it reads as ones.
        "hyperlink >= 21",
        # The templates of the agent: its sandbox keeps them from running code.
        "Jinja2 >= 3.1.6, < 4",
        "platformdirs >= 4",
        "PyYAML >= 6.0.1, < 7",
    ],
    entry_points={"console_scripts": ["svc = svc.cli.main:main"]},
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Operating System :: MacOS",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Typing :: Typed",
    ],
)
