"""A small client on our own engine: what `router send`, `receive` and `demo` are made of.

Theory of operation. A *link machine* (``sender.SendingLink``, ``receiver.ReceivingLink``) holds
the state that must outlive a connection: the unsettled deliveries. It turns events into commands
and never waits. ``conversation.Conversation`` dials, moves octets between socket, engine and
machine, and dials again when the connection is lost, until the machine is done. On
every new connection the machine attaches its link again, with its unsettled map, and resumes the
deliveries that the other end still has (§2.6.13).

First and later attaches differ: the first carries no unsettled map, so the other end begins anew;
later ones carry one, even if it is empty. An answer without a map means that the other end keeps no
state; deliveries sent and not settled by then are in doubt. At-least-once sends them again,
exactly-once never does.
"""
