"""TinyFiles policies, judges and encoders for tests, recipes and the quickstart on a CPU."""
