"""How much may be in flight: concurrency limiter, adaptive limit, rate quota, circuit breaker."""
