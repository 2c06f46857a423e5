"""The hub as Ray actors: one per job, or several shards, found by every worker."""

from zerowait.hub.ray.hub import RayHub, RayTickets

__all__ = ["RayHub", "RayTickets"]
