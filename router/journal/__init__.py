"""Floor 1: the crash-safe memory of what is unsettled, which is also the ledger of the audit."""
