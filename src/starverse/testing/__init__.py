"""Shipped fakes and builders for tests, benchmarks and whoever extends the product."""
