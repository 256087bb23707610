"""The server beside real software that the project didn't write: directories, identity providers, proxies, poolers.

``python -m tests.neighbours --list`` names them, ``python -m tests.neighbours samba`` starts one from packages, runs its
table of cases against a server of its own, and prints each deviation. It is no part of the test suite: a neighbour takes
minutes to install or to build.

A neighbour is a module of this package with

``SUMMARY``
    one line: the program, the version it was last run with, and where it comes from;
``missing() -> str | None``
    the command that installs what isn't on this machine, ``None`` when all of it is;
``rows(stack, directory) -> Iterable[Row]``
    starts the programs, with everything to be stopped pushed on the ``ExitStack`` and every file in the directory, and
    yields the cases, in the order in which they run;
``NAME``
    its name on the command line, where that can't be a module's.

In a cut-down example::

    def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
        proxy = start_program(stack, ["caddy", "run", "--config", str(directory / "Caddyfile")], directory)
        server = Server(stack, directory, "--account=acme", "--trusted-proxies=127.0.0.1")
        yield Row("health through the proxy", Answer(200, '"ok":true'), lambda: get(f"{proxy}/health"))
"""
