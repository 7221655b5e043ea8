"""Durations in words."""


def show_seconds(seconds: float) -> str:
    """Writes a duration for people: 0.2 s, 32 s, 5 min, 3.5 h, 2 d."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} d"
