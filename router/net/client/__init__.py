"""A small client on our own engine: what `router send`, `receive` and `demo` are made of.

Theory of operation. A *link machine* (``sender.SendingLink``, ``receiver.ReceivingLink``) holds
all that must outlive a connection: the deliveries not yet settled. It turns events into commands
and never waits. ``conversation.Conversation`` dials, moves octets between socket, engine and
machine, and dials again when the connection is lost, until the machine says that it is done. On
every new connection the machine attaches its link again, with its unsettled map, and resumes what
the other end remembers (§2.6.13).

First and later attaches differ: the first carries no unsettled map, so the other end begins anew;
later ones carry one, even an empty one. An answer without a map means that the other end keeps no
state; what was sent and not settled by then is in doubt. At-least-once sends it again,
exactly-once never does.
"""
