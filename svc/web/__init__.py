"""HTTP: paths, status codes, headers and JSON."""
