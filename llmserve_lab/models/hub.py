"""Whether the model hub can be reached, found out within seconds."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

DEFAULT_HUB = "https://huggingface.co"
HTTPS_PORT = 443
PROBE_SECONDS = 2.0


def hub_reachable(timeout: float = PROBE_SECONDS) -> bool:
    """Try to connect to the hub (HF_ENDPOINT, or huggingface.co); False with HF_HUB_OFFLINE=1."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return False
    address = urlsplit(os.environ.get("HF_ENDPOINT", DEFAULT_HUB))
    try:
        host = (address.hostname or "", address.port or HTTPS_PORT)
        with socket.create_connection(host, timeout=timeout):
            return True
    except OSError:
        return False
