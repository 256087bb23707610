"""``python -m svc`` is the command ``svc``."""

from svc.cli.main import main

main(prog_name="svc")
