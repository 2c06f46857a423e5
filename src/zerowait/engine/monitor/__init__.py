"""What is watched while an engine runs: statistics, reward health, event-loop lag, stalls."""
