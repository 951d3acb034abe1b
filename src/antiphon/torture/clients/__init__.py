"""Campaigns of clients: ``schedules.py`` draws what happens to clusters with clients, ``campaign.py`` runs it."""
