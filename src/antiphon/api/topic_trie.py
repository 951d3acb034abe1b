"""A trie of topic names or patterns: finds what matches without looking at all of them.

Names and patterns are words between dots (:mod:`antiphon.api.topic_names`). Each word is one step in the trie, so the
cost of a search follows the length of the name and the number of matches, not the number of entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Entry = TypeVar("Entry")

ONE_WORD = "*"
ALL_WORDS = ">"


class TrieNode(Generic[Entry]):
    """The entries that end here, in the order in which they came, and the steps that lead further."""

    __slots__ = ("entries", "steps")

    def __init__(self) -> None:
        self.entries: dict[Entry, None] = {}
        self.steps: dict[str, TrieNode[Entry]] = {}


class TopicTrie(Generic[Entry]):
    """Entries under names or patterns."""

    def __init__(self) -> None:
        self._root: TrieNode[Entry] = TrieNode()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: str, entry: Entry) -> None:
        """Keep an entry under a name or pattern."""
        node = self._root
        for word in key.split("."):
            following = node.steps.get(word)
            if following is None:
                following = node.steps[word] = TrieNode()
            node = following
        self._count += entry not in node.entries
        node.entries[entry] = None

    def remove(self, key: str, entry: Entry) -> None:
        """Forget an entry, and the steps that lead to nothing else; nothing happens if it is not there."""
        path = [self._root]
        words = key.split(".")
        for word in words:
            following = path[-1].steps.get(word)
            if following is None:
                return
            path.append(following)
        if entry not in path[-1].entries:
            return
        del path[-1].entries[entry]
        self._count -= 1
        for parent, word, node in zip(reversed(path[:-1]), reversed(words), reversed(path[1:]), strict=True):
            if node.entries or node.steps:
                return
            del parent.steps[word]

    def patterns_for(self, name: str) -> list[Entry]:
        """The entries under patterns, or names, that match a name."""
        found: list[Entry] = []
        nodes = [self._root]
        for word in name.split("."):
            following: list[TrieNode[Entry]] = []
            for node in nodes:
                steps = node.steps
                if ALL_WORDS in steps:
                    found += steps[ALL_WORDS].entries
                if ONE_WORD in steps:
                    following.append(steps[ONE_WORD])
                if word in steps:
                    following.append(steps[word])
            nodes = following
        for node in nodes:
            found += node.entries
        return found

    def names_for(self, pattern: str) -> list[Entry]:
        """The entries under names that match a pattern."""
        nodes = [self._root]
        for word in pattern.split("."):
            if word == ALL_WORDS:
                below = [following for node in nodes for following in node.steps.values()]
                return [entry for node in below for entry in entries_below(node)]
            if word == ONE_WORD:
                nodes = [following for node in nodes for following in node.steps.values()]
            else:
                nodes = [node.steps[word] for node in nodes if word in node.steps]
        return [entry for node in nodes for entry in node.entries]


def entries_below(node: TrieNode[Entry]) -> Iterator[Entry]:
    """The entries at a node of a trie and below it."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield from node.entries
        stack.extend(node.steps.values())
