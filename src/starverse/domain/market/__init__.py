"""What scarce cards cost: sealed-bid auctions, posted spot prices, the list of idle cards."""
