"""Buffers of Ginger as published, compared between a new parent and its child (Algorithms 10 to 12).

A parent sends the last number of each publisher. The child answers with the numbers that it needs and with publications
that the parent misses. The functions here compute the contents of these messages, and
:mod:`antiphon_lab.protocols.tree.ginger` sends them.
"""

from __future__ import annotations

from antiphon.kernel.message import TOTAL, Keyed, publication_key
from antiphon_lab.protocols.tree.ginger_messages import LastNumbers, Metadata, TotalProcessed
from antiphon_lab.protocols.tree.ginger_topic import PublishedGingerTopic


def note_missed(topic: PublishedGingerTopic, theirs: LastNumbers) -> LastNumbers:
    """Remember up to where a new parent resends; returns the last number here of each publisher that has more there."""
    mine = topic.last_numbers()
    needed: LastNumbers = {}
    for source, number in theirs.items():
        # Numbers are compared: the parent's last one may have left the buffer here (D33).
        if mine.get(source, 0) < number:
            needed[source] = mine.get(source, 0)
            topic.missed[source] = number
    return needed


def missing_at(topic: PublishedGingerTopic, theirs: LastNumbers, pushes_unknown: bool) -> list[Metadata]:
    """The publications in the buffer that a parent with these last numbers misses."""
    return [
        Metadata(entry.publication, entry.is_completed)
        for entry in topic.buffer
        if is_missing(theirs, entry.publication, pushes_unknown)
    ]


def is_missing(theirs: LastNumbers, publication: Keyed, pushes_unknown: bool) -> bool:
    """Whether a publication comes after the last number of its publisher, or its publisher is unknown (D32)."""
    last = theirs.get(int(publication.source))
    if last is None:
        return pushes_unknown
    return publication.sequence > last


def needed_from(topic: PublishedGingerTopic, needed: LastNumbers) -> list[Metadata]:
    """The publications in the buffer after these numbers. It is not checked whether all are still there (D35)."""
    return [
        Metadata(entry.publication, entry.is_completed)
        for entry in topic.buffer
        if entry.publication.sequence > needed.get(int(entry.publication.source), int(entry.publication.sequence))
    ]


def completions_after(
    topic: PublishedGingerTopic, completed: LastNumbers, resent: list[Metadata]
) -> list[TotalProcessed]:
    """The completions of total publications after these numbers, except of publications that are resent anyway."""
    names = {int(publication_key(one.publication.source, one.publication.sequence)) for one in resent}
    found: list[TotalProcessed] = []
    for entry in topic.buffer:
        publication = entry.publication
        name = int(publication_key(publication.source, publication.sequence))
        is_later = publication.sequence > completed.get(int(publication.source), 0)
        if publication.order == TOTAL and entry.is_completed and is_later and name not in names:
            found.append(TotalProcessed(publication.source, publication.sequence, publication.topic))
    return found
