"""The numbers of exactly-once writers and of their lanes, under which all nodes know them."""

from __future__ import annotations

from antiphon.api.topic_names import client_number
from antiphon.sessions.writers import owned_number
from antiphon.transport.tls import instance_of


def writer_number(holder: str, name: str) -> int:
    """The number of a writer. Holders do not share writers, also if these have the same name.

    All nodes see in it whose writer it is, and so how many lanes its identity has.
    """
    return owned_number(client_number(holder), client_number(instance_of(holder, f"writer {name}")))


def lane_number(holder: str, name: str, lane: int) -> int:
    """The number of one lane as an author of batches."""
    return client_number(instance_of(holder, f"lane {lane} of {name}"))
