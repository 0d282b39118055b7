"""Where replayed events come from: the flights of 2013, generated workloads, files."""
