"""svc keeps secrets and decides who may read them: an event-driven server, its client and its administration."""
