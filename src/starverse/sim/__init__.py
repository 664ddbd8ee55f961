"""What would have happened: a trace replayed through the product's own scheduler and prices."""
