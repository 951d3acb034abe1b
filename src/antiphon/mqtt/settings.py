"""The settings of a door: by arguments, by flags, or by the table ``[mqtt]`` of the file of a node."""

from __future__ import annotations

import msgspec

from antiphon.kernel.errors import UsageError
from antiphon.transport.links import split_address


class MqttSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a door serves MQTT clients."""

    listen: str | None = None
    """The address for MQTT clients; port 0 takes a free one."""

    keep_alive_seconds: int = 60
    """Clients that would be silent for longer are told to send something this often, and so are missed sooner. Clients
    of MQTT 3.1.1 cannot be told."""

    session_seconds: int = 7 * 86_400
    """For so long at most a session without a connection is kept."""

    sessions: int = 10_000
    """So many sessions the door keeps; those without a connection count too."""

    def checked(self) -> MqttSettings:
        """The same; an error names the setting that cannot be."""
        for address in (self.listen,):
            if address is not None:
                split_address(address)
        for name in ("keep_alive_seconds", "session_seconds", "sessions"):
            if not getattr(self, name) > 0:
                raise UsageError(f"[mqtt] {name} must be positive, not {getattr(self, name)}")
        return self
