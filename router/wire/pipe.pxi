# What a carrier receives from and sends to where that is not the socket itself.

cdef struct Pipe:
    void *owner
    # Receives plaintext, at most ``room`` octets. -1: errno says why. 0: only the owner of the
    # connection can go on; it is to receive by itself.
    long (*receive)(void *owner, uint8_t *at, size_t room) noexcept
    # Sends; returns how many octets of the pieces it has taken, at least 1; -1: errno says why.
    # Without pieces it only sends what waits, and returns 0 when that is gone.
    long (*send)(void *owner, iovec *pieces, size_t count) noexcept
    uint8_t waits             # octets that were taken wait for the socket
    uint8_t is_over           # no more octets will be received
