"""From a recipe to verl's trainer process: checks, overrides, start, resume."""
