"""Reads a verdict out of a judge's reply."""
