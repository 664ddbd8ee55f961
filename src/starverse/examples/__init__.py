"""Shipped scripts of the demo and the docs, and the data set that they train on."""
