"""The page about a run: its documents, and the code that draws them."""
