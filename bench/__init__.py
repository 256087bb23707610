"""What is measured, and how: ``python -m bench`` (see ``bench/README.md``)."""
