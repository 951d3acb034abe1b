"""Peer sampling: which other nodes a node knows. One service is one module; ``service.py`` says what each offers.

HyParView is what live nodes run. Cyclon and a list of all nodes serve simulations of EpTO.
"""
