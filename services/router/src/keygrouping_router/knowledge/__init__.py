"""What a router knows of its keys and of the balance of its workers, and what other groupings would give."""
