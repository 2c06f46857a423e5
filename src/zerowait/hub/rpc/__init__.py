"""RPC between a worker process and a Ray hub: calls, codec, connections, server."""
