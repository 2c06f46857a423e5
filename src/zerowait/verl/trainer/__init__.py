"""verl's trainer modes `zerowait...` and what they need."""
