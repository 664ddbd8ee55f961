"""The calendar of bookings: cards of a pool promised for future windows, and what may still be promised."""
