"""Comparison of several responses to one prompt: line-ups, schedules, standings."""
