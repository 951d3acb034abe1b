"""Taking identifiers to give to newcomers, where all are gone who had many (:mod:`antiphon.membership.address_book`).

Who has nothing left asks all others within reach whether a block is free. Whoever knows of somebody in it refuses; the
others note it as taken, whatever becomes of the asker. A newcomer asks again until it has its place.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.membership.address_book import Roster
from antiphon.runtime.logging import logger
from antiphon.runtime.scatter_gather import Others, Questions
from antiphon.runtime.tasks import Tasks
from antiphon.transport.peer_messages import BlockRequest, BlockResponse, Control

log = logger("blocks")


class BlockClaims:
    """How one node takes blocks, and answers others who do.

    ``roster`` is that of the node at the time; ``needed`` says how many others have to agree, beside that none refuses.
    """

    def __init__(
        self,
        others: Others,
        settle: Callable[[], None],
        tasks: Tasks,
        roster: Callable[[], Roster],
        needed: Callable[[], int],
    ) -> None:
        self._others = others
        self._settle = settle
        self._tasks = tasks
        self._roster = roster
        self._needed = needed
        self._questions: Questions[Control] = Questions(others, settle)
        self._is_claiming = False

    def claim(self) -> None:
        """Try to take a block, unless that goes on already."""
        if not self._is_claiming:
            self._is_claiming = True
            self._tasks.spawn(self._claim())

    async def _claim(self) -> None:
        try:
            block = self._roster().next_block()
            if block is None:
                log.error("there are no identifiers left: found the cluster anew")
                return
            answers = await self._questions.ask(lambda number: BlockRequest(number, block))
            agree = sum(isinstance(answer, BlockResponse) and answer.is_free for answer in answers)
            if agree == len(answers) and agree >= self._needed():
                self._roster().take_block(block)
                log.info("took identifiers to give", block=block)
        finally:
            self._is_claiming = False

    def on_message(self, sender: int, message: BlockRequest | BlockResponse) -> None:
        """Another node asks or answers."""
        if isinstance(message, BlockResponse):
            self._questions.answered(sender, message.number, message)
        else:
            self._others.tell(sender, BlockResponse(message.number, self._roster().is_free(message.block)))
            self._settle()
