"""The HTTP/1.1 transport: pooled connections, each with one request at a time, and proxies."""
