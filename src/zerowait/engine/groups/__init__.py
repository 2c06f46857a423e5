"""Prompt groups: where siblings meet, shapes over a group, comparisons within it."""
