"""Judges that zerowait serves itself: commands, processes, and the addresses of the replicas."""
