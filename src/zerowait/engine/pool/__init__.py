"""Worker processes for scorers that may hang or crash."""
