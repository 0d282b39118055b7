"""What stands in a document under a name."""

MISSING, NULL, WHOLE, REAL, TEXT, BOOLEAN = range(6)
"""Nothing, null, an integer, a float, a string, true or false."""
