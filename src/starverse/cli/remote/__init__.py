"""Commands that talk to the platform only through the client."""
