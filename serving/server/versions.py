"""Which versions of a model should be served: folders with numbers for names, and a policy."""

import os
import re

import tensorflow as tf

from serving.server.errors import from_tensorflow, invalid

_NUMBER = re.compile(r"[+-]?\d+")
_INT64 = 2**63


def find(base_path, name):
    """Dict from version to path of the version folders of a model.

    Only names that are numbers count, so that a folder being written under another name (as exports are, before they
    are renamed) is not seen.
    """
    try:
        children = sorted(tf.io.gfile.listdir(base_path)) if tf.io.gfile.exists(base_path) else None
    except tf.errors.OpError as error:  # a file, for example
        raise from_tensorflow(error) from error
    if children is None:
        raise invalid(
            f"Could not find base path {base_path} for servable {name} with error NOT_FOUND: {base_path} not found"
        )
    found = {}
    for child in children:
        child = child.rstrip("/")
        if _NUMBER.fullmatch(child) and -_INT64 <= int(child) < _INT64:
            found[int(child)] = os.path.join(base_path, child)
    return found


def choose(found, policy):
    """The versions that a `ServableVersionPolicy` asks for: the latest one by default."""
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        return dict(found)
    if kind == "specific":
        return {version: found[version] for version in policy.specific.versions if version in found}
    count = max(policy.latest.num_versions, 1)
    return {version: found[version] for version in sorted(found)[-count:]}


def validate(config):
    """Refuses a `ModelConfigList` with a name twice, without names, or with relative paths."""
    seen = set()
    for model in config.config:
        if not model.name:
            raise invalid(f"A model in the config list has no name: {model}")
        if model.name in seen:
            raise invalid(f"Illegal to list model {model.name} multiple times in config list")
        seen.add(model.name)
        if not os.path.isabs(model.base_path) and "://" not in model.base_path:
            raise invalid(
                f"Expected model {model.name} to have an absolute path or URI; got base_path()={model.base_path}"
            )
        if model.model_type and model.model_platform:
            raise invalid("Illegal setting both ModelServerConfig::model_type (deprecated) and model_platform.")
        platform = model.model_platform or ("tensorflow" if model.model_type else "")
        if not platform:
            raise invalid(
                "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
                "ModelServerConfig::model_platform."
            )
        if platform != "tensorflow":
            raise invalid(f"Model {model.name} requests unsupported platform {platform}")
