"""Values and refusals of the domain, and interfaces (ports) that several rooms implement."""
