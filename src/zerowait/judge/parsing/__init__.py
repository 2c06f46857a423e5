"""Parsers of verdicts in a judge's reply, one for each form that a verdict may have."""
