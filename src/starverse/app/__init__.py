"""Use cases, one module per resource: authorise, one transaction, call the domain, write."""
