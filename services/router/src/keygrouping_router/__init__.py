"""Routes events to workers, hot keys to several of them, exactly once."""
