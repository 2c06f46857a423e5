"""The rule `math`: answers in mathematical notation, read to the end and compared in full."""
