"""Proves while the pipeline runs that every event of the input is in the results, late or a dead letter, once."""
