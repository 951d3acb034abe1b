"""The settings of a door: by arguments, by flags, or by the table ``[mqtt]`` of the file of a node."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.kernel.errors import UsageError
from antiphon.runtime.toml_config import nearest_names
from antiphon.transport.links import split_address


class MqttSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a door serves MQTT clients."""

    listen: str | None = None
    """The address for MQTT clients; port 0 takes a free one."""

    websocket: str | None = None
    """The address for MQTT over WebSocket."""

    origins: list[str] = []
    """The origins of the pages that may connect over WebSocket, such as ``https://example.com``, beside pages of the
    same address; ``null`` stands for pages of files, ``*`` for all. Programs other than browsers may always come."""

    keep_alive_seconds: int = 60
    """Clients that would be silent for longer are told to send something this often, and so are missed sooner. Clients
    of MQTT 3.1.1 cannot be told."""

    session_seconds: int = 7 * 86_400
    """For so long at most a session without a connection is kept."""

    sessions: int = 10_000
    """So many sessions the door keeps; those without a connection count too."""

    def checked(self) -> MqttSettings:
        """The same; an error names the setting that cannot be."""
        for address in (self.listen, self.websocket):
            if address is not None:
                split_address(address)
        for origin in self.origins:
            if origin not in ("*", "null") and ("://" not in origin or origin.endswith("/")):
                raise UsageError(f"[mqtt] origins has {origin!r}; an origin is written like https://example.com")
        for name in ("keep_alive_seconds", "session_seconds", "sessions"):
            if not getattr(self, name) > 0:
                raise UsageError(f"[mqtt] {name} must be positive, not {getattr(self, name)}")
        return self


def settings_of(values: dict[str, Any]) -> MqttSettings:
    """Settings from names and values; an error names what cannot be."""
    try:
        return msgspec.convert(values, MqttSettings).checked()
    except msgspec.ValidationError as error:
        hint = nearest_names(values, MqttSettings.__struct_fields__)
        raise UsageError(f"[mqtt]: {error}{hint}; docs/guides/mqtt.md names all settings") from error
