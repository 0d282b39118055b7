"""What every HTTP interface of the services has in common."""
