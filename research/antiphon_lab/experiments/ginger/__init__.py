"""The broker tree: the dissertation on Ginger, and BankService, its replicated application."""
