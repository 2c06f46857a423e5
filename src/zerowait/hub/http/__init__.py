"""The hub behind HTTP: the service, and the client that trainers without Ray use."""

from zerowait.hub.http.hub import HttpHub

__all__ = ["HttpHub"]
