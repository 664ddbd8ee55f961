"""Price book, rating (usage -> charges), discounts and quotes: pricing.md as pure functions, exact."""
