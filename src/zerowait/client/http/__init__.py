"""HTTP/1.1 transports: our own over pooled connections, and one over aiohttp."""
