"""Commands about replicated services: ``antiphon advise`` says which order each operation needs."""

from __future__ import annotations
