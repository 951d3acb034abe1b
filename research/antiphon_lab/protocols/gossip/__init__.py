"""Epidemic protocols as published: StaN, peer sampling services, and the rivals of BRISA."""
