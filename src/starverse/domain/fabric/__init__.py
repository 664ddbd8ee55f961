"""The network between nodes as it was measured: never as it is declared."""
