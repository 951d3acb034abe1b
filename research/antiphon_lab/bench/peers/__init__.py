"""The same traffic through Antiphon and through other systems, side by side: ``antiphon bench peers``."""
