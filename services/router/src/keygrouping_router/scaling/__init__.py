"""The number of workers: what runs, and what should."""
