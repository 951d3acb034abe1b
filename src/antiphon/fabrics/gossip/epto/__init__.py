"""EpTO: total order by balls of events that spread like rumours, alone or beside the trees of a topic."""
