"""Training on a CPU: verl's platform, engines and rollout without a GPU."""
