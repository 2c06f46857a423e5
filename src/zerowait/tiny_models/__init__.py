"""Tiny policies and a small judge for tests, recipes and the quickstart, all on a CPU.

The reward engine imports nothing from here.
"""
