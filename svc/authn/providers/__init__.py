"""Keys of identity providers: guarded fetching, cached sets, budgets."""
