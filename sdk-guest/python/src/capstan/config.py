"""Reads the plugin's own configuration."""

from __future__ import annotations

from capstan import _json
from capstan._daemon import daemon
from capstan._json import Object


def get() -> Object:
    """Returns the `config` of the plugin in the manifest, with references to Secrets and ConfigMaps resolved; `{}` if there is none."""
    config: Object = _json.read(daemon().config())
    return config
