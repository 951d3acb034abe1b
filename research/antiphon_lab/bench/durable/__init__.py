"""``antiphon bench peers --durable``: histories on disk, with receipts and acknowledgements."""
