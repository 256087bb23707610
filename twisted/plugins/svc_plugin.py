"""Announces ``twistd svc``."""

import sys
from pathlib import Path

from twisted.application.service import ServiceMaker

from svc.model.interrupts import install_interrupt_handler

svc = ServiceMaker("svc", "svc.tap", "Keeps secrets and decides who may read them.", "svc")

# Twisted would take an interrupt of the next plugin's import for that plugin's fault.
if Path(sys.argv[0]).name == "twistd" and svc.tapname in sys.argv:
    install_interrupt_handler()
