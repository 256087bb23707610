"""Announces ``twistd svc``."""

from twisted.application.service import ServiceMaker

svc = ServiceMaker("svc", "svc.tap", "Keeps secrets and decides who may read them.", "svc")
