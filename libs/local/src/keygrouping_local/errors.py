"""One error type for all faults that the user can fix, so that the command shows one line instead of a trace."""


class LocalError(Exception):
    """Something on this machine stands in the way; the message is one line that says what to do."""
