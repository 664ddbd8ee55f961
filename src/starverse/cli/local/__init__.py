"""Commands that need the product itself; each is loaded by name only when it is called."""
