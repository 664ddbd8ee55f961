"""What the product is measured beside: published rules, each with its source, and bounds."""
