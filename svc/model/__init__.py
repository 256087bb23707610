"""Values and refusals of the domain, and the interfaces (ports) by which its rooms meet."""
