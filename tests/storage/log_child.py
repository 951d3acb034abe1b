"""A process that commits to a durable log until it is killed; what it was promised, it says on standard output.

    python log_child.py DIRECTORY SEED

Lines: ``promised COMMIT NEXT_OFFSET_OF_ROOM NEXT_OFFSET_OF_HALL``, written after the commit returned.
"""

from __future__ import annotations

import os
import random
import sys

from antiphon.storage.log import DurableLog
from antiphon.storage.log_topics import LogRetention

LARGE_BYTES = 3 << 20
"""Two of these are more than one statement of the store writes."""


def batch_of(topic: str, first_offset: int, count: int) -> bytes:
    """The batch that belongs at an offset, so that every reader can tell whether it is right; a few are large."""
    size = LARGE_BYTES if count % 16 == 0 else first_offset * 37 % 9000
    return random.Random(f"{topic} {first_offset} {count}").randbytes(size)


def main() -> None:
    """Append to two topics in groups of any size, commit, promise, trim now and then."""
    generator = random.Random(int(sys.argv[2]))
    log = DurableLog.open(sys.argv[1], retention=LogRetention(bytes=8_000_000))
    commit = int(log.get("commit") or b"0")
    os.write(1, f"promised {commit} {log.latest('room')} {log.latest('hall')}\n".encode())
    while True:
        for _ in range(generator.choice([1, 2, 10, 40])):
            topic, count = generator.choice(["room", "hall"]), generator.randrange(1, 65)
            log.append(topic, count, commit, batch_of(topic, log.latest(topic), count))
        commit += 1
        log.put("commit", str(commit).encode())
        log.commit()
        os.write(1, f"promised {commit} {log.latest('room')} {log.latest('hall')}\n".encode())
        if commit % 5 == 0:
            log.trim(commit)


if __name__ == "__main__":
    main()
