"""The hub behind HTTP: the service, and the clients that trainers without Ray use."""

from zerowait.hub.http.hub import HttpHub
from zerowait.hub.http.remote import RemoteRewards, connect

__all__ = ["HttpHub", "RemoteRewards", "connect"]
