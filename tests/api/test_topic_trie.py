"""The trie finds exactly what a comparison of every entry would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.api.topic_names import matches
from antiphon.api.topic_trie import TopicTrie

WORDS = st.sampled_from(["a", "b", "c"])
NAMES = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.tuples(st.lists(st.sampled_from(["a", "b", "c", "*"]), min_size=1, max_size=4), st.booleans()).map(
    lambda drawn: ".".join([*drawn[0], ">"] if drawn[1] else drawn[0])
)


@given(st.lists(PATTERNS), NAMES)
def test_it_finds_the_patterns_that_match_a_name(patterns: list[str], name: str) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    expected = [number for number, pattern in enumerate(patterns) if matches(pattern, name)]
    assert sorted(trie.patterns_for(name)) == expected


@given(st.sets(NAMES), st.one_of(PATTERNS, st.just(">")))
def test_it_finds_the_names_that_match_a_pattern(names: set[str], pattern: str) -> None:
    trie: TopicTrie[str] = TopicTrie()
    for name in names:
        trie.add(name, name)
    assert sorted(trie.names_for(pattern)) == sorted(name for name in names if matches(pattern, name))


@given(st.lists(PATTERNS, unique=True), st.data())
def test_what_is_removed_is_not_found_and_leaves_nothing_behind(patterns: list[str], data: st.DataObject) -> None:
    trie: TopicTrie[str] = TopicTrie()
    for pattern in patterns:
        trie.add(pattern, pattern)
    kept = data.draw(st.lists(st.sampled_from(patterns), unique=True) if patterns else st.just([]))
    for pattern in patterns:
        if pattern not in kept:
            trie.remove(pattern, pattern)
            trie.remove(pattern, pattern)
    assert len(trie) == len(kept)
    name = data.draw(NAMES)
    assert sorted(trie.patterns_for(name)) == sorted(pattern for pattern in kept if matches(pattern, name))
    for pattern in kept:
        trie.remove(pattern, pattern)
    assert len(trie) == 0 and not trie._root.steps
