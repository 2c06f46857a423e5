"""Comparison of several responses to one prompt: requests, schedules, and ratings from results."""
