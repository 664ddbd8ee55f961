"""Instances: launch, start, stop, resize, clone, extend, release; how they follow their runs."""
