"""Floor 1: the crash-safe store of unsettled deliveries, which also feeds the audit's ledger."""
