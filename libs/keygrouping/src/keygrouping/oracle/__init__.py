"""Events read and counted again by other code than the stages', so that faults of theirs show.

`reading` takes a job's key, time and fields out of an event; `counting` keeps them, and says what a result must be.
"""
