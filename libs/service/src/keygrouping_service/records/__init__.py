"""Records on their way in and out: unpacking, packing, and what becomes of those that are of no use."""
