"""MQTT 5 and 3.1.1 at a node: clients in any language publish and subscribe beside Python programs.

``protocol`` is pure: packets, their bytes, and the acknowledgements of both sides. ``topics`` and ``envelope`` say how
names and messages of MQTT and of Antiphon stand for each other. ``retained`` keeps the last value of each topic, the
same at every door. ``shares`` hands out to groups, ``subscribing`` and ``publishing`` are the
ways into the node. ``door`` listens and knows the sessions, ``connection`` is one client, and ``session`` is what
outlives its connections; ``moving`` takes it to other doors. ``telling`` is the way of notices to other doors. Start
reading at ``door.py``.

Imports ``node`` and what nodes stand on. Only ``cli`` imports it.
"""

from __future__ import annotations

from antiphon.mqtt.door import MqttDoor, serve

__all__ = ["MqttDoor", "serve"]
