"""Models as SavedModels for TF-Serving, and what such a folder holds."""

from serving.exporting.exporter import export_model
from serving.exporting.folder import newest, versions

__all__ = ["export_model", "newest", "versions"]
