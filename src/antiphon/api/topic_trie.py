"""A trie of topic names or patterns: finds what matches without looking at all of them.

Names and patterns are words between dots (:mod:`antiphon.api.topic_names`). Each word is one step in the trie, so the
cost of a search follows the length of the name and the number of matches, not the number of entries. Most names lead to
one entry and no further, so their last step leads to the entry itself.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, final

Entry = TypeVar("Entry")

ONE_WORD: Final = "*"
ALL_WORDS: Final = ">"


@final
class TrieNode:
    """The entries that end here, in the order in which they came, and the steps that lead further.

    A step leads to another node or to the only entry.
    """

    __slots__ = ("entries", "steps")

    def __init__(self) -> None:
        self.entries: dict[object, None] = {}
        self.steps: dict[str, object] = {}

    def step(self, word: str) -> TrieNode:
        """The node to which a word leads, made now if there is none."""
        found = self.steps.get(word)
        if isinstance(found, TrieNode):
            return found
        node = TrieNode()
        if found is not None:
            node.entries[found] = None
        self.steps[word] = node
        return node


class TopicTrie(Generic[Entry]):
    """Entries under names or patterns. No entry is None."""

    def __init__(self) -> None:
        self._root = TrieNode()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: str, entry: Entry) -> bool:
        """Keep an entry under a name or pattern; whether it is new there."""
        node = self._root
        *words, last = key.split(".")
        for word in words:
            node = node.step(word)
        found = node.steps.get(last)
        if found is None:
            node.steps[last] = entry
        else:
            if found == entry:
                return False
            node = node.step(last)
            if entry in node.entries:
                return False
            node.entries[entry] = None
        self._count += 1
        return True

    def remove(self, key: str, entry: Entry) -> None:
        """Forget an entry, and the steps that lead to nothing else; nothing happens if it is not there."""
        path: list[tuple[TrieNode, str]] = []
        found: object = self._root
        for word in key.split("."):
            if not isinstance(found, TrieNode):
                return
            path.append((found, word))
            found = found.steps.get(word)
        if isinstance(found, TrieNode):
            if entry not in found.entries:
                return
            del found.entries[entry]
        elif found is None or found != entry:
            return
        self._count -= 1
        for parent, word in reversed(path):
            if isinstance(found, TrieNode) and (found.entries or found.steps):
                return
            del parent.steps[word]
            found = parent

    def patterns_for(self, name: str) -> list[Entry]:
        """The entries under patterns, or names, that match a name."""
        found: list[object] = []
        reached: list[object] = [self._root]
        for word in name.split("."):
            following: list[object] = []
            for node in reached:
                if isinstance(node, TrieNode):
                    steps = node.steps
                    if ALL_WORDS in steps:
                        found += entries_at(steps[ALL_WORDS])
                    if ONE_WORD in steps:
                        following.append(steps[ONE_WORD])
                    if word in steps:
                        following.append(steps[word])
            reached = following
        for node in reached:
            found += entries_at(node)
        return found  # type: ignore[return-value]

    def names_for(self, pattern: str) -> list[Entry]:
        """The entries under names that match a pattern."""
        reached: list[object] = [self._root]
        for word in pattern.split("."):
            nodes = [node for node in reached if isinstance(node, TrieNode)]
            if word == ALL_WORDS:
                below = [following for node in nodes for following in node.steps.values()]
                return entries_below(below)  # type: ignore[return-value]
            if word == ONE_WORD:
                reached = [following for node in nodes for following in node.steps.values()]
            else:
                reached = [node.steps[word] for node in nodes if word in node.steps]
        return [entry for node in reached for entry in entries_at(node)]  # type: ignore[misc]


def entries_at(place: object) -> list[object]:
    """The entries that a step leads to."""
    return list(place.entries) if isinstance(place, TrieNode) else [place]


def entries_below(places: list[object]) -> list[object]:
    """The entries at some places of a trie and below them."""
    found: list[object] = []
    while places:
        place = places.pop()
        found += entries_at(place)
        if isinstance(place, TrieNode):
            places += place.steps.values()
    return found
