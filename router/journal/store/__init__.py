"""The message store: messages whose target is away, kept in the order of their arrival."""
