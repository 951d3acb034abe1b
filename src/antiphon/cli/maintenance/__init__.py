"""Commands for operators: the log of a node that is stopped, and the packages that are installed."""
