"""Groupings that let a key choose among a few workers by their loads: Partial Key Grouping and its family."""
