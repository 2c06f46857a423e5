"""Rewards of verl's rows: reward manager, tickets, settlement, metrics."""
