"""Shelf entries: manifests that say which bytes a dataset is."""
