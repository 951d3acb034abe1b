"""The deterministic host: virtual time, one seed, one thread."""
