"""The measurements: ``python -m bench`` (see ``bench/README.md``)."""
