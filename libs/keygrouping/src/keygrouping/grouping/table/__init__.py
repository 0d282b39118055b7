"""Groupings by a routing table: at the end of an interval a planner says which keys move to which worker."""
