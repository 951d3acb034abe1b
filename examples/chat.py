"""A chat in which nobody sees an answer without its question.

python examples/chat.py                                   # three people talk over a slow network
python examples/chat.py Anna --servers 127.0.0.1:7400     # take part yourself (antiphon up, in another terminal)

If you take part: a line that begins with a number answers the message with that number.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import antiphon
import antiphon.testing

ROOM = "chat.lobby"


class Chat:
    """One person in the room. Messages are numbered as they arrive here."""

    def __init__(self, name: str, client: antiphon.Client) -> None:
        self.name = name
        self.client = client
        self._identities: list[str] = []

    async def say(self, text: str, answers: int | None = None) -> None:
        """Publish a message. It follows every message that this client has received."""
        headers = {"name": self.name.encode()}
        if answers is not None:
            headers["answers"] = self._identities[answers - 1].encode()
        await self.client.publish(ROOM, text.encode(), order="causal", headers=headers)

    def line_of(self, message: antiphon.Message) -> str:
        """A message for the screen. Causal order promises that the message which it answers is on the screen."""
        # Author and number name a message at every node.
        self._identities.append(f"{message.author}:{message.author_sequence}")
        answers = message.headers.get("answers")
        about = "" if answers is None else f" (answers {self._identities.index(answers.decode()) + 1})"
        return f"{len(self._identities)}. {message.headers['name'].decode()}{about}: {message.value.decode()}"

    async def lines(self, room: antiphon.Subscription, count: int) -> list[str]:
        """The next lines of the chat."""
        found: list[str] = []
        async for message in room:
            found.append(self.line_of(message))
            if len(found) == count:
                break
        return found


async def conversation(cluster: antiphon.testing.Cluster) -> None:
    """Anna's messages take a second to Clara's node. Ben answers at once, and his answer takes a short way."""
    people = [Chat(name, await cluster.connect(place)) for place, name in enumerate(("Anna", "Ben", "Clara"))]
    rooms = [await person.client.subscribe(ROOM).ready() for person in people]
    anna, ben, clara = people
    cluster.delay(0, 2, 1.0)
    await anna.say("Where do we meet?")
    await ben.lines(rooms[1], 1)
    await ben.say("At the station.", answers=1)
    for line in await clara.lines(rooms[2], 2):
        print(f"Clara sees {line}")


async def take_part(name: str, servers: str) -> None:
    """Publish the lines of the terminal, and print the messages of all."""
    async with antiphon.connect(servers) as client:
        chat = Chat(name, client)
        async with client.subscribe(ROOM, callback=lambda message: print(chat.line_of(message))):
            while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
                first, _, rest = line.partition(" ")
                if first.isdigit() and rest:
                    await chat.say(rest, answers=int(first))
                else:
                    await chat.say(line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?")
    parser.add_argument("--servers", default="127.0.0.1:7400")
    chosen = parser.parse_args()
    if chosen.name:
        antiphon.run(take_part(chosen.name, chosen.servers))
    else:
        antiphon.testing.run(conversation, nodes=3)
