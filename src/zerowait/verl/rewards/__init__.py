"""Rewards of verl's rows: reward manager, tickets, row treatment, metrics."""
