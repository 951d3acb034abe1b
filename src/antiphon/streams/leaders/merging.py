"""One order for what several replicas were delivered: a publication comes behind everything that it follows."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from antiphon.streams.messages import PublicationLinks
from antiphon.streams.numbering import Extent, Name

Edges = dict[Name, set[Name]]
"""Publications, and those that follow them."""


class KnownList(NamedTuple):
    """The publications that one replica was delivered, in that order.

    If it ``is_whole``, everything that they follow is among them or has a place. If not, ``links`` has what the
    first of them say themselves.
    """

    publications: list[tuple[Name, Extent]]
    is_whole: bool
    links: Sequence[PublicationLinks]


def in_order(lists: Sequence[KnownList]) -> list[Name]:
    """All publications of some lists.

    Nothing in a whole list follows what is in none, so the whole lists come first.
    """
    whole = merged([[name for name, _ in each.publications] for each in lists if each.is_whole], {})
    known = set(whole)
    others = [each for each in lists if not each.is_whole]
    left = [[name for name, _ in each.publications if name not in known] for each in others]
    return whole + merged(left, said_edges(others))


def said_edges(lists: Sequence[KnownList]) -> Edges:
    """The publications that others say that they follow, among those of some lists."""
    links = {name: said for each in lists for (name, _), said in zip(each.publications, each.links, strict=False)}
    # By author: the first numbers of its publications, ascending, and the publications.
    authored: dict[int, list[tuple[int, Name]]] = {}
    for name, (first, _, _) in links.items():
        authored.setdefault(name[0], []).append((first, name))
    edges: Edges = {}
    for numbered in authored.values():
        numbered.sort()
        for (_, before), (_, after) in pairwise(numbered):
            edges.setdefault(before, set()).add(after)
    for name, (_, _, pairs) in links.items():
        for author, number in zip(pairs[::2], pairs[1::2], strict=False):
            numbered = authored.get(author, [])
            # The last one of that author; it comes behind the earlier ones.
            place = bisect_right(numbered, number, key=lambda each: each[0])
            if place and numbered[place - 1][1] != name:
                edges.setdefault(numbered[place - 1][1], set()).add(name)
    return edges


def merged(lists: Sequence[list[Name]], edges: Edges) -> list[Name]:
    """Everything in some lists, each after all that are before it in any of them, or that it says to follow.

    Publications that do not follow each other may be in another order in each list. Where all wait for each other
    because of that, the longest list decides: what it begins with follows nothing that it lacks, if it lacks nothing.
    """
    left = [deque(each) for each in sorted(lists, key=len, reverse=True)]
    # In how many lists a name is, in how many of them it is the first one that is left, and how many others it awaits.
    counts = Counter(name for each in lists for name in each)
    heads = Counter(each[0] for each in left if each)
    awaited = Counter(after for before, found in edges.items() if before in counts for after in found)
    free = deque(name for name in heads if heads[name] == counts[name] and not awaited[name])
    found: list[Name] = []
    placed: set[Name] = set()
    while len(found) < len(counts):
        name = free.popleft() if free else _first_of_all(left, awaited)
        if name in placed:
            continue
        found.append(name)
        placed.add(name)
        for each in left:
            if each and each[0] == name:
                each.popleft()
            elif counts[name] > heads[name] and name in each:
                each.remove(name)
                continue
            else:
                continue
            if each:
                heads[each[0]] += 1
                if heads[each[0]] == counts[each[0]] and not awaited[each[0]]:
                    free.append(each[0])
        for after in sorted(edges.get(name, ())):
            awaited[after] -= 1
            if not awaited[after] and after not in placed and 0 < counts[after] == heads[after]:
                free.append(after)
    return found


def _first_of_all(left: list[deque[Name]], awaited: Counter[Name]) -> Name:
    """The first name of the longest list, if possible one that says to follow nothing that is left."""
    heads = [each[0] for each in left if each]
    return next((name for name in heads if not awaited[name]), heads[0])
