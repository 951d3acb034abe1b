"""``python -m antiphon`` is the ``antiphon`` command."""

from antiphon.cli.main import main

main()
