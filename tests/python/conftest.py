"""Makes the modules beside the tests importable."""
