"""Numbers and durations as a sentence has them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`8 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if days:
        return f"{days} d {hours_left} h"
    if hours:
        return f"{hours} h {minutes_left:02d} min"
    if minutes:
        return f"{minutes} min {rest:02d} s"
    return f"{rest} s"


def rate(per_second: float) -> str:
    """Records per second, or per minute when they are few."""
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{60 * per_second:.1f}/min"


def dollars(amount: float | None) -> str:
    if amount is None:
        return "unknown"
    return f"${amount:,.2f}" if amount >= 0.01 or amount == 0 else "under $0.01"
