"""What is in force, where it is stored, and what follows from it for groupings."""
