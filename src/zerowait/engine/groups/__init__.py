"""Prompt groups: the responses to one prompt, shapes over them, and comparisons between them."""
