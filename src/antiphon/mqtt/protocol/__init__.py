"""The packets of MQTT 5 and 3.1.1 and their exchange, as pure functions and state machines.

``packets`` names what can be said, ``properties`` what can be said beside it. ``decoding`` and ``encoding`` turn
packets into bytes and back for both versions, ``framing`` cuts a stream into packets. ``outgoing`` and ``incoming`` are
the two ends of the exchanges of QoS 1 and 2. Imports ``kernel`` alone.
"""
