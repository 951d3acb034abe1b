"""Who there is in a gossip cluster: identifiers that nobody is asked for, contacts that are agreed on in the end."""

from __future__ import annotations

import random

import pytest

from antiphon.kernel.errors import ProtocolError
from antiphon.membership.address_book import BLOCK, BLOCKS_AT_MOST, BLOCKS_FIRST, PART, WISHES_BELOW, AddressBook
from antiphon.membership.messages import MAXIMUM_IDENTIFIER, Peer, PlaceResponse


def newcomer(number: int) -> Peer:
    return Peer(f"life {number}", f"host:{number}")


def placed(giver: AddressBook, number: int, contacts: int = 3) -> AddressBook:
    """A node that has got its place from another, and has said so."""
    found = AddressBook(f"life {number}", f"host:{number}", contacts)
    place = giver.give(newcomer(number))
    assert place is not None
    found.take(place)
    giver.claim(found.me)
    return found


def founder(contacts: int = 3) -> AddressBook:
    first = AddressBook("life 0", "host:0", contacts)
    first.found(0)
    return first


def test_whoever_gives_places_no_two_nodes_get_the_same() -> None:
    """Any node takes newcomers in, as clusters grow: nobody asks anybody else."""
    chance = random.Random(1)
    rosters = [founder()]
    for number in range(1, 3000):
        able = chance.choice(rosters)
        if able.give(newcomer(number)) is None:
            # It asks a contact to give instead.
            able = rosters[0]
        rosters.append(placed(able, number))
    identifiers = [address_book.me.identifier for address_book in rosters]
    assert len(set(identifiers)) == len(rosters)
    assert all(identifier is not None and 0 <= identifier <= MAXIMUM_IDENTIFIER for identifier in identifiers)


def test_a_newcomer_gets_the_identifier_that_it_wishes_for_if_that_is_free() -> None:
    first = founder()
    wishes = [7, None, 7, 2, None, None, 1, WISHES_BELOW, 0]
    given = [first.give(newcomer(number), wish) for number, wish in enumerate(wishes, 1)]
    assert [place.identifier for place in given if place is not None] == [7, 1, 2, 3, 4, 5, 6, 8, 9]
    assert first.give(newcomer(1), 30) == given[0]


def test_wishes_or_not_no_two_nodes_get_the_same() -> None:
    chance = random.Random(2)
    books = [founder()]
    for number in range(1, 2000):
        wish = chance.choice((None, chance.randrange(4000)))
        able = chance.choice(books)
        place = able.give(newcomer(number), wish)
        if place is None:
            place = books[0].give(newcomer(number), wish)
        assert place is not None
        book = AddressBook(f"life {number}", f"host:{number}", 3)
        book.take(place)
        books.append(book)
    identifiers = [book.me.identifier for book in books]
    assert len(set(identifiers)) == len(books)


def test_a_wish_is_never_in_a_part_that_somebody_else_gives() -> None:
    giver = AddressBook("life 0", "host:0", 3)
    giver.take(PlaceResponse(9, 1000, 2024, [], "", 0))
    for number in range(1, 40):
        before = giver.give(newcomer(number))
        assert before is not None
        wished = giver.give(newcomer(100 + number), before.first)
        assert wished is not None and not before.first <= wished.identifier < before.end


def test_thousands_may_come_and_go_through_one_node() -> None:
    first = founder()
    given = [first.give(newcomer(number)) for number in range(1, 9 * PART)]
    assert len({place.identifier for place in given if place is not None}) == len(given) > 2000
    later = placed(founder(), 1)
    assert all(later.give(newcomer(number)) is not None for number in range(2, 4 * PART))


def test_who_asks_again_gets_the_same_place() -> None:
    first = founder()
    assert first.give(newcomer(1)) == first.give(newcomer(1)) != first.give(newcomer(2))


def test_who_has_nothing_left_says_so() -> None:
    last = AddressBook("life 0", "host:0", 3)
    last.found(BLOCKS_FIRST - 2)
    assert last.give(newcomer(1)) is not None
    assert last.give(newcomer(2)) is None


def test_a_cluster_that_begins_again_uses_no_identifier_twice() -> None:
    again = AddressBook("life 0", "host:0", 3)
    again.found(17)
    assert again.me.identifier == 17
    place = again.give(newcomer(1))
    assert place is not None and place.identifier == 18 and place.end > place.first > 18


def test_the_first_who_come_are_contacts() -> None:
    first = founder()
    others = [placed(first, number) for number in range(1, 6)]
    assert first.contacts() == [0, 1, 2]
    assert [address_book.contacts() for address_book in others] == [[0], [0, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
    assert others[0].appointed(first.appointments())
    assert others[0].contacts() == [0, 1, 2]
    assert not others[0].appointed(first.appointments())


def test_a_lost_contact_is_replaced_by_a_junior_one() -> None:
    """Node 0 is lost; node 1 is the senior now, and appoints node 5, which comes last, whatever its identifier."""
    first = founder()
    second, third, *_ = [placed(first, number) for number in range(1, 6)]
    for address_book in (second, third):
        address_book.appointed(first.appointments())
        assert address_book.unreachable(0)
    second.learn([Peer("life 5", "host:5", 5)])
    assert second.is_first_contact() and not third.is_first_contact()
    assert second.appoint([5]) and not second.appoint([4])
    assert second.contacts() == [1, 2, 5]
    assert third.appointed(second.appointments()) and third.contacts() == [1, 2, 5]


def test_a_contact_that_seemed_lost_and_is_heard_is_one_again() -> None:
    first = founder()
    second = placed(first, 1)
    second.appointed(first.appointments())
    second.unreachable(0)
    assert second.contacts() == [1] and second.lost_contacts() == [0]
    assert not second.appointed(first.appointments()), "others may not know yet; who cannot reach it leaves it out"
    assert second.reachable(0)
    assert second.contacts() == [0, 1] and second.lost_contacts() == []


def test_a_newcomer_that_was_given_two_places_has_the_one_that_it_took() -> None:
    """It asks the next node when an answer is late; the node whose place it did not take hears of that."""
    for is_introduced_before in (False, True):
        first = founder()
        second = placed(first, 1)
        late = first.give(newcomer(2))
        taken = second.give(newcomer(2))
        assert late is not None and taken is not None and late.identifier != taken.identifier
        itself = Peer("life 2", "host:2", taken.identifier)
        if is_introduced_before:
            first.learn([itself])
        assert first.claim(itself) == late.identifier
        first.check_claim("life 2", [itself])
        first.learn([itself])
        assert first.identifier_of("life 2") == taken.identifier
        assert first.peer(late.identifier) is None and late.identifier not in first.contacts()
        assert first.has_place_elsewhere("life 2")


def test_a_newcomer_is_known_by_its_own_word_and_not_by_that_of_others() -> None:
    first = founder()
    second = placed(first, 1)
    late, taken = first.give(newcomer(2)), second.give(newcomer(2))
    assert late is not None and taken is not None
    itself, hearsay = Peer("life 2", "host:2", taken.identifier), Peer("life 2", "host:2", late.identifier)
    third = placed(second, 3)
    third.learn([hearsay])
    assert third.claim(itself) == late.identifier
    third.learn([itself])
    assert third.identifier_of("life 2") == taken.identifier and third.peer(late.identifier) is None
    assert third.claim(itself) is None
    assert third.claim(Peer("life 2", "host:2", 1), 3) is None, "it began as a founder, before it was given a place"
    assert first.claim(itself) == late.identifier


def test_who_has_taken_the_place_that_it_was_given_keeps_it() -> None:
    first = founder()
    second = placed(first, 1)
    other = second.give(newcomer(9))
    assert first.claim(second.me) is None and other is not None
    impostor = Peer("life 1", "host:1", other.identifier)
    assert first.claim(impostor) is None
    with pytest.raises(ProtocolError, match="claims the identifier"):
        first.check_claim("life 1", [impostor])


def test_blocks_of_identifiers_are_taken_one_after_the_other() -> None:
    """Who has heard of a block, or was taken in by somebody who has, never agrees to it again."""
    one, other = AddressBook("one", "host:1", 0), AddressBook("other", "host:2", 0)
    one.take(PlaceResponse(0, 1, 1, []))
    other.take(PlaceResponse(1, 2, 2, []))
    assert one.give(Peer("third", "host:3")) is None
    block = one.next_block()
    assert block == 0 and other.is_free(block) and not other.is_free(block)
    one.take_block(block)
    given = one.give(Peer("third", "host:3"))
    assert given is not None and given.identifier == BLOCKS_FIRST
    third = AddressBook("third", "host:3", 0)
    third.take(given)
    assert third.next_block() == 1 and other.next_block() == 1


def test_identifiers_of_others_tell_which_blocks_are_taken() -> None:
    address_book = AddressBook("one", "host:1", 0)
    address_book.take(PlaceResponse(0, 1, 1, []))
    address_book.learn([Peer("other", "host:2", BLOCKS_FIRST + 5 * BLOCK + 3)])
    assert not address_book.is_free(5) and address_book.next_block() == 6


def test_when_all_blocks_are_taken_there_is_nothing_left() -> None:
    address_book = AddressBook("one", "host:1", 0)
    assert address_book.is_free(BLOCKS_AT_MOST - 1) and address_book.next_block() is None


def test_in_gossip_blocks_are_drawn_until_one_is_free() -> None:
    """Who has heard of somebody in a block, or has agreed that somebody takes it, does not draw it."""
    draws = iter([7, 8, 9, 9, 5])
    address_book = AddressBook("i", "h:1", 0, lambda below: next(draws) % below)
    address_book.learn([Peer("other", "o:1", BLOCKS_FIRST + 7 * BLOCK + 3)])
    assert address_book.is_free(8) and not address_book.is_free(8)
    assert address_book.next_block() == 9
    # Blocks before and behind it are as free as they were.
    assert address_book.next_block() == 5


def test_who_draws_in_vain_has_nothing_left() -> None:
    address_book = AddressBook("i", "h:1", 0, lambda _: 0)
    assert address_book.next_block() == 0 and address_book.next_block() is None


def test_a_founder_gives_no_identifiers_of_blocks() -> None:
    address_book = AddressBook("i", "h:1", 0)
    address_book.found(0)
    place = address_book.give(Peer("newcomer", "n:1"))
    assert place is not None and place.end == BLOCKS_FIRST
