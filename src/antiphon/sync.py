"""A client for programs without ``async``: scripts and notebooks.

with antiphon.sync.connect("127.0.0.1:7400") as client:
    client.publish("room", b"why?")
    for message in client.subscribe("room"):
        ...

The client runs on an event loop in a thread of its own. Each call waits until it is done. Several threads may use one
client.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from antiphon.api.batch import Message
from antiphon.api.columns import Receipt
from antiphon.api.requests.serving import Request
from antiphon.api.streams.consumption import ConsumedMessage
from antiphon.api.streams.position_waits import SettledReceipt
from antiphon.api.streams.starts import StreamStart
from antiphon.api.streams.topics import PolicyChanges, Topics
from antiphon.client.handle import Client
from antiphon.client.handle import connect as connect_async
from antiphon.runtime.errors import ClosedError
from antiphon.streams.position import Position
from antiphon.streams.requests import TopicInfo

if TYPE_CHECKING:
    from antiphon.node.handle import Node

Result = TypeVar("Result")


class LoopThread:
    """An event loop in a thread, for one client."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="antiphon-sync", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
        """Do some work on the loop, and wait for its result."""
        if self.loop.is_closed():
            work.close()
            raise ClosedError("the client has been closed; connect again")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """Wait for one item after the other."""

        async def following() -> Result:
            return await anext(items)

        while True:
            try:
                yield self.run(following())
            except StopAsyncIteration:
                return

    def stop(self) -> None:
        """End the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class SyncMessage:
    """A message of a consumer. Acknowledge it, or give it back."""

    def __init__(self, thread: LoopThread, message: ConsumedMessage) -> None:
        self._thread = thread
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def ack(self) -> None:
        """The work is done: the message never comes again."""
        self._thread.run(self._acked())

    async def _acked(self) -> None:
        await self._message.ack()

    def nack(self, delay_seconds: float = 0.0) -> None:
        """Give the message back: it is handed out again, after a while."""
        self._thread.run(self._message.nack(delay_seconds))

    def extend(self) -> None:
        """Take longer: the time for the acknowledgement begins anew."""
        self._thread.run(self._message.extend())


class SyncRequest:
    """A request that this program is to answer."""

    def __init__(self, thread: LoopThread, request: Request) -> None:
        self._thread = thread
        self._request = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def reply(self, value: bytes, *, more: bool = False, headers: dict[str, bytes] | None = None) -> None:
        """Answer; with ``more`` further replies follow, until one without it, or :meth:`end`."""
        self._thread.run(self._request.reply(value, more=more, headers=headers))

    def end(self) -> None:
        """Nothing more follows."""
        self._thread.run(self._request.end())

    def fail(self, reason: str) -> None:
        """It cannot be answered: the caller's ``request`` raises ``RequestFailedError`` with the reason."""
        self._thread.run(self._request.fail(reason))


class SyncTopics:
    """The topics with a history: make, change, list, describe and remove them."""

    def __init__(self, thread: LoopThread, topics: Topics) -> None:
        self._thread = thread
        self._topics = topics

    def create(self, name: str, **policy: Unpack[PolicyChanges]) -> TopicInfo:
        """Keep the history of a topic from now on; see :meth:`Topics.create`."""
        return self._thread.run(self._topics.create(name, **policy))

    def found(self) -> None:
        """Begin the list of topics at this client's node; see :meth:`Topics.found`."""
        self._thread.run(self._topics.found())

    def set(self, name: str, **policy: Unpack[PolicyChanges]) -> TopicInfo:
        """Keep the history of a topic differently from now on; what is left out stays as it is."""
        return self._thread.run(self._topics.set(name, **policy))

    def list(self) -> list[TopicInfo]:
        """All topics with a history that this client may read."""
        return self._thread.run(self._topics.list())

    def describe(self, name: str) -> TopicInfo:
        """How far a topic's history is, where it is kept, and its consumers."""
        return self._thread.run(self._topics.describe(name))

    def remove(self, name: str) -> None:
        """Remove the history of a topic, and its consumers."""
        self._thread.run(self._topics.remove(name))

    def reset_consumer(self, topic: str, name: str, start: StreamStart = "earliest") -> None:
        """Let a consumer begin at another place; see :meth:`Topics.reset_consumer`."""
        self._thread.run(self._topics.reset_consumer(topic, name, start))

    def remove_consumer(self, topic: str, name: str) -> None:
        """Forget a consumer of a topic."""
        self._thread.run(self._topics.remove_consumer(topic, name))


class SyncClient:
    """A client, or a node in this program, whose calls wait. Made by :func:`connect` and :func:`start`."""

    def __init__(self, thread: LoopThread, client: Client | Node) -> None:
        self._thread = thread
        self._client = client
        self.topics = SyncTopics(thread, client.topics)

    @property
    def address(self) -> str:
        """The address of the node."""
        return self._client.address

    def publish(self, topic: str, value: bytes, **options: Any) -> Receipt | SettledReceipt:
        """Publish a message and wait until it is accepted; the options are those of ``Client.publish``."""

        async def publish() -> Receipt | SettledReceipt:
            receipt: Receipt | SettledReceipt = await self._client.publish(topic, value, **options)
            return receipt

        return self._thread.run(publish())

    def publish_many(self, topic: str, values: Sequence[bytes], **options: Any) -> list[Receipt]:
        """Publish messages together and wait until all are accepted: much faster than one by one."""

        async def publish() -> list[Receipt]:
            under_way = [self._client.publish(topic, value, **options) for value in values]
            return [await each for each in under_way]

        return self._thread.run(publish())

    def subscribe(self, topic: str, start: Any = "latest", **options: Any) -> Iterator[Any]:
        """The messages of a topic or pattern, from the moment of this call on."""

        async def begin() -> AsyncIterator[Any]:
            return aiter(await self._client.subscribe(topic, start, **options).ready())

        return self._thread.iterate(self._thread.run(begin()))

    def consume(self, topic: str, name: str | None = None, **options: Any) -> Iterator[SyncMessage]:
        """Take messages as a member of a named consumer; the options are those of ``Client.consume``."""

        async def begin() -> AsyncIterator[ConsumedMessage]:
            return aiter(await self._client.consume(topic, name, **options).ready())

        messages = self._thread.iterate(self._thread.run(begin()))
        return (SyncMessage(self._thread, message) for message in messages)

    def request(self, topic: str, value: bytes, **options: Any) -> Message:
        """Ask a program that serves a topic, and wait for its reply; the options are those of ``Client.request``."""
        return self._thread.run(self._client.request(topic, value, **options))

    def request_many(self, topic: str, value: bytes, **options: Any) -> Iterator[Message]:
        """Ask a program that serves a topic, and iterate over its replies."""
        return self._thread.iterate(self._client.request_many(topic, value, **options))

    def serve(self, topic: str, **options: Any) -> Iterator[SyncRequest]:
        """Answer the requests on a topic, from this call on; the options are those of ``Client.serve``."""

        async def begin() -> AsyncIterator[Request]:
            return aiter(await self._client.serve(topic, **options).ready())

        requests = self._thread.iterate(self._thread.run(begin()))
        return (SyncRequest(self._thread, request) for request in requests)

    def history(self, topic: str, start: StreamStart = "earliest", *, follow: bool = False) -> Iterator[Message]:
        """The history of a topic from a position on; with ``follow`` it does not end."""
        return self._thread.iterate(self._client.history(topic, start, follow=follow))

    def settled(self, receipt: Receipt, timeout: float = 15.0) -> SettledReceipt:
        """Wait until a message has its position, on the disks of a majority of the topic's replicas."""
        return self._thread.run(self._client.settled(receipt, timeout))

    def position_of(self, message: Message) -> Position:
        """The position of a message, also of one that came before it had one."""
        return self._thread.run(self._client.position_of(message))

    def flush(self) -> None:
        """Wait until everything published so far is accepted; raises if something was refused."""
        self._thread.run(self._client.flush())

    def close(self) -> None:
        """Wait for what is in flight, and end the connection."""
        if not self._thread.loop.is_closed():
            try:
                self._thread.run(self._client.close())
            finally:
                self._thread.stop()

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def connect(addresses: str | Sequence[str], **options: Any) -> SyncClient:
    """Connect to a node; the options are those of :func:`antiphon.connect`."""

    async def begin() -> Client:
        return await connect_async(addresses, **options)

    return on_thread(begin)


def start(**settings: Any) -> SyncClient:
    """Run a node in this program; the settings are those of :func:`antiphon.start`. It has the calls of a client."""

    async def begin() -> Node:
        # A program that only connects needs nothing of a node.
        from antiphon.node.handle import start as start_node

        return await start_node(**settings)

    return on_thread(begin)


def on_thread(begin: Callable[[], Coroutine[Any, Any, Client | Node]]) -> SyncClient:
    """A client or a node on an event loop of its own."""
    thread = LoopThread()
    try:
        return SyncClient(thread, thread.run(begin()))
    except BaseException:
        thread.stop()
        raise
