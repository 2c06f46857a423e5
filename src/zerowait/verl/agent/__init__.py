"""verl's agent loop `search`."""
