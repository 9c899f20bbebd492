"""Initializers that several weights share."""

import zlib


def copy_for(name, initializer):
    """A copy for the weight `name`. One with a seed gets another seed for each name, and with it other values."""
    config = initializer.get_config()
    seed = config.get("seed")
    if isinstance(seed, dict):  # a `SeedGenerator`
        seed = seed.get("config", {}).get("seed")
    if isinstance(seed, int):
        config["seed"] = (seed + zlib.crc32(name.encode())) % 2**31
    return initializer.__class__.from_config(config)
