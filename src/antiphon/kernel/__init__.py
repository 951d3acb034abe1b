"""The contract that every protocol is written against. Read this package first; it takes ten minutes.

* :mod:`~antiphon.kernel.process`: ``Process`` (a protocol at one node) and ``Environment`` (what it may do).
* :mod:`~antiphon.kernel.message`: ``ProtocolMessage`` and ``Publication``, frozen and typed.
* :mod:`~antiphon.kernel.randomness`: repeatable random numbers.
* :mod:`~antiphon.kernel.errors`: whose fault it was.
* :mod:`~antiphon.kernel.interval_set` and :mod:`~antiphon.kernel.publication_set`: sets of numbers with gaps.

A whole protocol, complete and runnable in both hosts::

    class Rumour(Process):
        def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
            self.tell(Publication(self.me, 1, self.environment.now(), payload))
            return 1

        def receive(self, sender: int, message: ProtocolMessage) -> None:
            assert isinstance(message, Publication)
            self.tell(message)

        def tell(self, publication: Publication) -> None:
            self.environment.deliver(publication)
            if self.me + 1 < 10:
                self.environment.send(self.me + 1, publication)
"""

from antiphon.kernel.errors import AntiphonError, PeerError, ProtocolError, ScenarioError, UsageError
from antiphon.kernel.message import CAUSAL, FIFO, NONE, UNSPECIFIED, ProtocolMessage, Publication, publication_key
from antiphon.kernel.process import NO_NODE, Environment, Process
from antiphon.kernel.randomness import RandomStream, mix64, product64

__all__ = [
    "CAUSAL",
    "FIFO",
    "NONE",
    "NO_NODE",
    "UNSPECIFIED",
    "AntiphonError",
    "Environment",
    "PeerError",
    "Process",
    "ProtocolError",
    "ProtocolMessage",
    "Publication",
    "RandomStream",
    "ScenarioError",
    "UsageError",
    "mix64",
    "product64",
    "publication_key",
]
