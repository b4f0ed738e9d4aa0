"""Upstream's own start-up validators as data: read from source or from tables, and evaluated without running them."""
