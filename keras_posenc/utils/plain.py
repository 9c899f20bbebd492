"""Numbers for JSON, which has neither NaN nor infinity."""

import math


def plain(value):
    """Dicts, lists, numbers and strings as `json` writes them; numbers that are not finite become `None`."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
