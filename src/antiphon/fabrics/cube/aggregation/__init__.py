"""Causal aggregation inside VCube-PS: forwarders delay what nobody below them could deliver, and send it with its
cause.

``process.py`` is the process, ``dissemination.py`` the part that holds back and releases, ``packets.py`` the form of
packets.
"""
