"""What can't be spread, and what to do instead."""


class SkewError(ValueError):
    """A setting or a frame with which keys can't be spread; the text names the fix."""


class NotMergeableError(SkewError):
    """An aggregate whose partials no rule merges into the rows of plain Spark."""
