"""The things batches are routed to: SteMs, joins, expensive selections; and the final aggregation."""
