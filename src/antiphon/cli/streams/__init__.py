"""Commands about topics with a history, and their consumers."""
