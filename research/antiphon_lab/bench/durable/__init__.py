"""``antiphon bench peers --durable``: histories on disk, with receipts for publishers and acknowledgements of consumers."""
