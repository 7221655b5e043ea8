"""The store on PostgreSQL: the journal outlives the machine that wrote it."""
