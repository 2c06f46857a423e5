"""verl on a CPU: platform, training engines and a rollout server."""
